# doxygen.awk - prepares a file for Doxygen
#
# Comments of paceline.h become documentation: one before a declaration belongs to it, one after code to that line.
# Links of pages to sources become links to Doxygen's listings of them; links to a heading become links to its page,
# because Doxygen names headings differently.

# The page on which Doxygen lists a source file: "embed_8c_source.html" of "../examples/embed.c".
function listing(path) {
    sub(/.*\//, "", path)
    gsub(/_/, "__", path)
    gsub(/\./, "_8", path)
    return path "_source.html"
}

FILENAME ~ /\.md$/ {
    line = $0
    done = ""
    while (match(line, /\[[^][]*\]\([^):]*\)/)) {
        link = substr(line, RSTART, RLENGTH)
        text = link
        sub(/^\[/, "", text)
        sub(/\]\(.*/, "", text)
        sub(/.*\]\(/, "", link)
        sub(/(#.*)?\)$/, "", link)
        done = done substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        if (link ~ /\.(c|cc|h|py|json)$/) {
            gsub(/`/, "", text)
            done = done "<a href=\"" listing(link) "\">" text "</a>"
        } else if (link ~ /\.(md|png|svg)$/)
            done = done "[" text "](" link ")"
        else
            done = done text
    }
    print done line
    next
}

FNR == 1 { sub(/^\/\* paceline\.h - /, "/** @file\n * ") }
/^\/\* ---- .* ---- *-*.*\*\/$/ { print; next }
/^\/\*[^*]/ { sub(/^\/\*/, "/**") }
/[^ \t].*\/\* / && !/\/\*\*/ { sub(/\/\* /, "/**< ") }
/^[ \t]+\/\* / { sub(/\/\* /, "/** ") }
{ print }
