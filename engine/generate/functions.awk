# functions.awk - writes paceline(3) and a page for each group of functions from engine/paceline.h
#
#     awk -v folder=man3 -v version=0.1.0 -v date=2026-01-01 -f functions.awk paceline.h
#
# A group is the code below a comment, up to the next comment or an empty line.  Its page has the first name that is
# not a macro; all other names are links to it.  Code without a comment, or with a comment directly below the previous
# group, belongs to that group.

BEGIN { WIDTH = 72 }            # of code; with the margin of a page at most 80 columns

function trimmed(text) {
    sub(/^[ \t]+/, "", text)
    sub(/[ \t]+$/, "", text)
    return text
}

# ---- roff ----

function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\&" text
    return text
}

# Names of functions in bold.
function with_names(text,    done, name) {
    text = roff(text)
    while (match(text, /(pl_[a-z0-9_]+|PL_[A-Z0-9_]+)\(\)/)) {
        name = substr(text, RSTART, RLENGTH - 2)
        done = done substr(text, 1, RSTART - 1) "\\fB" name "\\fR()"
        text = substr(text, RSTART + RLENGTH)
    }
    return done text
}

# Writes a paragraph in short lines.
function say(text, file,    word, count, k, line) {
    count = split(text, word, / +/)
    for (k = 1; k <= count; k++) {
        if (line != "" && length(line) + length(word[k]) > 76) {
            print with_names(line) >file
            line = ""
        }
        line = line (line == "" ? "" : " ") word[k]
    }
    if (line != "")
        print with_names(line) >file
}

function begin_page(file, name, section) {
    printf ".TH %s 3 \"%s\" \"Paceline %s\" \"%s\"\n", roff(toupper(name)), date, version, roff(section) >file
    print ".SH NAME" >file
}

# ---- code: a comment after it moves above it if the line is too long ----

function put_code(line) {
    code[++code_lines] = line
}

# Breaks a text at `between` into lines; all except the last end with `end`.
function put_wrapped(text, indent, first, further, between, end,    part, count, k, line) {
    count = split(text, part, between)
    line = indent first
    for (k = 1; k <= count; k++) {
        if (k > 1 && length(line) + length(part[k]) + 1 + length(end) > WIDTH) {
            put_code(line end)
            line = indent further
        }
        line = line (k > 1 && line != indent further ? " " : "") part[k]
    }
    put_code(line)
}

function put_comment(text, indent) {
    put_wrapped(text " */", indent, "/* ", " * ", " +", "")
}

# Breaks code after commas and before operators, but not within a string; a type stays with its name.
function put_broken(text, indent, further, end,    part, count, k) {
    count = split(text, part, "\"")
    text = ""
    for (k = 1; k <= count; k++) {
        if (k % 2) {
            gsub(/, /, ",\n", part[k])
            gsub(/ [|\/] /, "\n&", part[k])
            gsub(/\n /, "\n", part[k])
        }
        text = text (k == 1 ? "" : "\"") part[k]
    }
    put_wrapped(text, indent, "", further, "\n", end)
}

# Aligns arguments that do not fit below the first.
function put_fitting(line, indent,    at) {
    if (length(line) <= WIDTH) {
        put_code(line)
        return
    }
    at = index(line, ")(")
    put_broken(trimmed(line), indent, at ? sprintf("%" at + 1 - length(indent) "s", "") : "    ", "")
}

# A line of code and its comment.
function put_line(line, comment,    indent) {
    match(line, /^ */)
    indent = substr(line, 1, RLENGTH)
    if (comment != "" && trimmed(line) != "" && length(line) + length(comment) + 8 <= WIDTH) {
        put_code(line "  /* " comment " */")
        return
    }
    if (comment != "")
        put_comment(comment, indent)
    if (trimmed(line) != "")
        put_fitting(line, indent)
}

# A line of a macro, which continues with `end`.
function put_macro(line,    end, indent) {
    match(line, /^ */)
    indent = substr(line, 1, RLENGTH)
    end = line ~ / \\$/ ? " \\" : ""
    sub(/ \\$/, "", line)
    if (length(line end) <= WIDTH)
        put_code(line end)
    else if (line ~ /^ *\* /)
        put_wrapped(trimmed(line) end, indent, "", "* ", " +", " \\")
    else
        put_broken(trimmed(line) end, indent, "  ", " \\")
}

# A prototype on as few lines as possible.
function put_prototype(text, comment) {
    sub(/^PL_API /, "", text)
    sub(/ PL_PRINTF\([0-9, ]*\)/, "", text)
    gsub(/[ \t]+/, " ", text)
    if (comment != "")
        put_comment(comment, "")
    put_broken(text, "", "    ", "")
}

# ---- groups ----

function clear_group(    k) {
    for (k in code)
        delete code[k]
    code_lines = name_count = adjoins = 0
    text = declaration = macro = typed = ""
}

function add_name(name) {
    if (name == "" || name ~ /_$/ || name == "PL_X" || name in seen)
        return
    seen[name] = 1
    names[++name_count] = name
    if (name ~ /^PL_[A-Z]/)
        macro = macro == "" ? name : macro
    else
        typed = typed == "" ? name : typed
}

# The name that a declaration declares.
function find_name(d,    name) {
    if (d ~ /^#define/) {
        match(d, /PL_[A-Za-z0-9_]+/)
        name = substr(d, RSTART, RLENGTH)
    } else if (d ~ /^PL_API/) {
        match(d, /(pl|paceline)_[a-z0-9_]+\(/)
        name = substr(d, RSTART, RLENGTH - 1)
    } else if (d ~ /^typedef[^{]*\(\*pl_/) {
        match(d, /\(\*pl_[a-z0-9_]+/)
        name = substr(d, RSTART + 2, RLENGTH - 2)
    } else if (d ~ /^typedef/ && match(d, /pl_[a-z0-9_]+_t;$/))
        name = substr(d, RSTART, RLENGTH - 1)
    add_name(name)
}

# Position of a mark outside brackets that a match of `behind` follows; 0: none.
function outside(text, marks, behind,    k, c, deep) {
    for (k = 1; k < length(text); k++) {
        c = substr(text, k, 1)
        if (index("([{", c))
            deep++
        else if (index(")]}", c))
            deep--
        else if (deep <= 0 && index(marks, c) && substr(text, k + 1, 1) ~ behind && substr(text, k - 1, 2) != "..")
            return k
    }
    return 0
}

# Description of a group: the first sentence; if it is long, its part before the first colon.
function clause(g,    said, at) {
    said = group_text[g] "\n"
    at = outside(said, ".", "[ \n]")
    said = substr(said, 1, at ? at - 1 : length(said) - 1)
    if (length(said) > 100 && (at = outside(said, ";:", " ")))
        said = substr(said, 1, at - 1)
    return said ~ /^[A-Z][a-z ]/ ? tolower(substr(said, 1, 1)) substr(said, 2) : said
}

# The names of a group in a text.
function called(    k, all) {
    for (k = 1; k <= name_count; k++)
        all = all (k == 1 ? "" : ", ") names[k] (code[1] ~ /^(typedef|struct|#define|enum)/ ? "" : "()")
    return all
}

function end_group(    g, k) {
    if (!code_lines && text != "") {                        # a remark about the section
        remark[sections] = remark[sections] (remark[sections] == "" ? "" : "\n") text
    } else if (code_lines && (text == "" || adjoins) && groups && section_of[groups] == sections) {
        g = groups
        group_code[g] = group_code[g] "\n"
        if (text != "")
            group_text[g] = group_text[g] "\n\n" called() ": " text
    } else if (code_lines && name_count) {
        g = ++groups
        section_of[g] = sections
        group_text[g] = text
        page[g] = typed == "" ? macro : typed
        group_code[g] = ""
    }
    for (k = 1; g && k <= code_lines; k++)
        group_code[g] = group_code[g] code[k] "\n"
    for (k = 1; g && k <= name_count; k++) {
        group_names[g] = group_names[g] (group_names[g] == "" ? "" : " ") names[k]
        page_of[names[k]] = page[g]
    }
    clear_group()
}

# ---- reading ----

# The text of a line of a comment.
function said(line) {
    sub(/^ *\/?\*+ ?/, "", line)
    sub(/ *\*\/.*$/, "", line)
    return trimmed(line)
}

function joined(a, b) {
    return a == "" || b == "" ? a b : a " " b
}

function read_code(line,    at, comment, rest, opened) {
    if (behind) {                                           # a comment that continues
        held_comment = joined(held_comment, said(line))
        if (line !~ /\*\//)
            return
        behind = 0
    } else if (line ~ /\\$/ || continued) {                 # a macro, unchanged
        if (!continued)
            find_name(line)
        continued = line ~ /\\$/
        put_macro(line)
        return
    } else {
        held = line
        held_comment = ""
        at = index(line, "/*")
        if (at) {
            held = substr(line, 1, at - 1)
            sub(/ +$/, "", held)
            comment = substr(line, at)
            held_comment = said(comment)
            if (trimmed(held) == "") {
                match(line, /^ */)
                held = substr(line, 1, RLENGTH)
            }
            behind = comment !~ /\*\//
            if (behind)
                return
        }
    }
    rest = held
    declaration = joined(declaration, trimmed(rest))
    opened = gsub(/[{]/, "", rest)
    depth += opened - gsub(/[}]/, "", rest)
    if (declaration ~ /^PL_API/) {
        prototype_comment = joined(prototype_comment, held_comment)
        if (declaration ~ /;$/)
            put_prototype(declaration, prototype_comment)
    } else
        put_line(held, held_comment)
    if (!depth && (declaration ~ /;$/ || declaration ~ /^#/)) {
        find_name(declaration)
        declaration = prototype_comment = ""
    }
}

{ gsub(/…/, "...") }

/^\/\* ---- / {
    end_group()
    title[++sections] = $0
    sub(/^\/\* ---- /, "", title[sections])
    sub(/ -+ \*\/$/, "", title[sections])
    next
}

!sections {                                                 # before the first section
    if (NR > 2 && !opened_all) {
        preamble = preamble "\n" said($0)
        opened_all = $0 ~ /\*\//
    }
    next
}

/^#ifdef __cplusplus/ { foreign = 1 }
/^#(else|endif)/ { foreign = 0; next }
foreign { next }

in_comment {
    text = joined(text, said($0))
    in_comment = $0 !~ /\*\//
    next
}

declaration != "" || depth || continued || behind {
    if (trimmed($0) == "")
        put_code("")
    else
        read_code($0)
    next
}

/^[ \t]*$/ { end_group(); next }

/^\/\*/ {
    if (code_lines) {
        end_group()
        adjoins = 1
    }
    text = joined(text, said($0))
    in_comment = $0 !~ /\*\//
    next
}

{ read_code($0) }

# ---- writing ----

function see_also(g, file,    rest, name, list, count, known, k) {
    rest = group_code[g] " " group_text[g]
    while (match(rest, /(pl|paceline|PL)_[A-Za-z0-9_]+/)) {
        name = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (name in page_of && page_of[name] != page[g] && !(page_of[name] in known)) {
            known[page_of[name]] = 1
            list[++count] = page_of[name]
        }
    }
    print ".SH SEE ALSO" >file
    for (k = 1; k <= count; k++)
        printf ".BR %s (3),\n", roff(list[k]) >file
    print ".BR paceline (3)" >file
}

function write_page(g,    file, name, count, k, line) {
    file = folder "/" page[g] ".3"
    begin_page(file, page[g], title[section_of[g]])
    count = split(group_names[g], name, " ")
    line = page[g]
    for (k = 1; k <= count; k++)
        if (name[k] != page[g])
            line = line ", " name[k]
    line = line " \\- "
    print line roff(clause(g)) >file
    print ".SH SYNOPSIS\n.nf\n.B #include <paceline.h>\n.fi\n.PP\n.nf" >file
    count = split(group_code[g], name, "\n")
    while (count && name[count] == "")
        count--
    for (k = 1; k <= count; k++)
        print name[k] == "" ? ".sp" : roff(name[k]) >file
    print ".fi" >file
    if (group_text[g] != "") {
        print ".SH DESCRIPTION" >file
        paragraphs(group_text[g], file)
    }
    see_also(g, file)
    close(file)
}

function paragraphs(text, file,    part, count, k, line) {
    count = split(text, part, "\n")
    for (k = 1; k <= count; k++)
        if (part[k] != "")
            line = joined(line, part[k])
        else if (line != "") {
            say(line, file)
            print ".PP" >file
            line = ""
        }
    if (line != "")
        say(line, file)
}

function write_overview(    file, s, g, name, count, k) {
    file = folder "/paceline.3"
    begin_page(file, "paceline", "Paceline Library")
    print "paceline \\- train neural networks inside a program" >file
    print ".SH SYNOPSIS\n.nf\n.B #include <paceline.h>\n.PP" >file
    print "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs paceline)\n.fi\n.SH DESCRIPTION" >file
    paragraphs(preamble, file)
    for (s = 1; s <= sections; s++) {
        print ".SH " toupper(roff(title[s])) >file
        if (remark[s] != "") {
            count = split(remark[s], name, "\n")
            for (k = 1; k <= count; k++) {
                say(name[k], file)
                if (k < count)
                    print ".PP" >file
            }
        }
        for (g = 1; g <= groups; g++)
            if (section_of[g] == s) {
                print ".TP" >file
                count = split(group_names[g], name, " ")
                for (k = 1; k <= count; k++)
                    printf "%s%s", k == 1 ? "" : ", ", "\\fB" roff(name[k]) "\\fR(3)" >file
                print "" >file
                say(clause(g), file)
            }
    }
    print ".SH SEE ALSO\n.BR paceline (1)" >file
    close(file)
}

END {
    end_group()
    for (g = 1; g <= groups; g++)
        write_page(g)
    for (name in page_of)
        if (page_of[name] != name)
            print "ln -sf " page_of[name] ".3 " folder "/" name ".3" | "sh"
    write_overview()
}
