# cover.awk - from what gcov says of each object to one line for each source of the library
#
# A source that is in several objects counts as the best of them.

/^File / {
    file = substr($0, 7, length($0) - 7)
    sub(top, "", file)
}
/^Lines executed/ && file ~ /^(accelerators|actors|engine|strategies)\// {
    split($2, part, /[:%]/)
    if (!(file in lines) || part[2] > share[file])
        share[file] = part[2] + 0
    lines[file] = $4 + 0
    file = ""
}
END {
    for (file in lines) {
        printf "%6.2f %% of %5d lines  %s\n", share[file], lines[file], file
        all += lines[file]
        reached += lines[file] * share[file] / 100
    }
    printf "%6.2f %% of %5d lines  all\n", all ? 100 * reached / all : 0, all
}
