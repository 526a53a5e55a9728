# interface.awk - writes what other languages need of engine/paceline.h
#
#     awk -v to=record -f interface.awk paceline.h      the calls of graph functions in a record, for tensor/record.c
#     awk -v to=python -f interface.awk paceline.h      structs, functions and methods for the package in python/
#
# A graph function takes a pl_graph_t, or makes a metric of nodes, and all its types are known below; a function with
# another type is left out.  Further results, such as h_n of a GRU, are made where the argument "results" asks for them,
# and named by a call "result".  The members of its struct of options are arguments by name.

BEGIN {
    split("g.flatten.from_axis=1 log.when=\"on_epoch\" max_pool2d.stride=0 max_pool2d.padding=0 var.correction=1 " \
          "embedding.init={\"normal\":1.0} param.init={\"zeros\":[]} state.init={\"zeros\":[]} " \
          "state.agree=\"rank0\" batch_norm.momentum=0.1 batch_norm.epsilon=1e-5 layer_norm.epsilon=1e-5 " \
          "elu.f=1.0 leaky_relu.f=0.01 huber.delta=1.0 cosine_embedding.margin=0.0 triplet.margin=1.0 auroc.bins=0 " \
          "average_precision.bins=0 softmax.axis=-1 log_softmax.axis=-1 cosine_similarity.axis=1 dropout.p=0.5", word, " ")
    for (k in word) {                                       # what a method takes if an argument is not given
        at = index(word[k], "=")
        name = substr(word[k], 1, at - 1)
        sub(/^g\./, "", name)
        fallback[name] = substr(word[k], at + 1)
    }
    python_of["int"] = "c_int"; python_of["unsigned"] = "c_uint"; python_of["bool"] = "c_bool"
    python_of["double"] = "c_double"; python_of["float"] = "c_float"; python_of["char"] = "c_char"
    python_of["int64_t"] = "c_int64"; python_of["int32_t"] = "c_int32"; python_of["uint32_t"] = "c_uint32"
    python_of["uint64_t"] = "c_uint64"; python_of["size_t"] = "c_size_t"
    reader["int"] = "int"; reader["int64_t"] = "i64"; reader["double"] = "real"; reader["bool"] = "bool"
    reader["pl_node_t"] = "node"; reader["pl_shape_t"] = "shape"; reader["pl_init_rule_t"] = "init"
    reader["pl_metric_t"] = "metric"; reader["pl_loss_t"] = "metric"
    hint["int"] = "int"; hint["i64"] = "int"; hint["real"] = "float"; hint["bool"] = "bool"; hint["node"] = "Value"
    hint["shape"] = "Sequence[int]"; hint["init"] = "Init"; hint["metric"] = "Metric"; hint["text"] = "str"
    hint["word"] = "str"; hint["ints"] = "Ints"; hint["i64s"] = "Ints"; hint["reals"] = "Sequence[float]"
    hint["nodes"] = "Sequence[Value]"; hint["states"] = "Sequence[Any]"
    reserved = " from in is as if with lambda not and or pass "
}

function trimmed(text) {
    sub(/^[ \t]+/, "", text)
    sub(/[ \t]+$/, "", text)
    return text
}

# ---- reading: statements, each with the comment before it ----

/^\/\* ---- / {
    section = $0
    sub(/^\/\* ---- /, "", section)
    sub(/ -+ \*\/$/, "", section)
    doc = ""
    next
}

/^#ifdef __cplusplus/ { foreign = 1 }
/^#(else|endif)/ { foreign = 0 }

continued || /^#/ {
    line = $0
    continued = sub(/\\$/, "", line)
    macro = macro " " line
    if (!continued) {
        read_macro(macro)
        macro = ""
    }
    next
}

foreign { next }

{ read_line($0) }

function read_line(line,    at, end) {
    while (line != "") {
        if (in_comment) {
            end = index(line, "*/")
            comment = comment " " trimmed(end ? substr(line, 1, end - 1) : line)
            if (!end) return
            in_comment = 0; line = substr(line, end + 2)
            if (trimmed(statement) == "") {
                gsub(/ \*( |$)/, " ", comment)
                gsub(/ +/, " ", comment)
                doc = trimmed(comment)
            }
            continue
        }
        at = index(line, "/*")
        read_code(at ? substr(line, 1, at - 1) : line)
        if (!at) return
        in_comment = 1
        comment = ""
        line = substr(line, at + 2)
    }
}

function read_code(code,    k, c) {
    for (k = 1; k <= length(code); k++) {
        c = substr(code, k, 1); statement = statement c
        depth += (c == "{") - (c == "}")
        if (c == ";" && depth == 0) {
            read_statement(trimmed(substr(statement, 1, length(statement) - 1)))
            statement = ""
        }
    }
    statement = statement " "
}

# "#define PL_FIELDS 8", lists of X(...), and the pattern by which an enum has such a list.
function read_macro(text,    name, rest, entry) {
    sub(/\/\*.*\*\//, "", text)
    gsub(/[ \t]+/, " ", text)
    text = trimmed(text)
    if (text ~ /^# ?define PL_X\(/) {
        pattern = text
        return
    }
    if (text !~ /^# ?define PL_[A-Z_0-9]+/) return
    match(text, /PL_[A-Z_0-9]+/)
    name = substr(text, RSTART, RLENGTH)
    rest = trimmed(substr(text, RSTART + RLENGTH))
    if (rest ~ /^-?[0-9]+$/ || rest ~ /^"[^"]*"$/)
        constant[name] = rest
    if (substr(rest, 1, 3) != "(X)") return
    while (match(rest, / X\([A-Za-z_0-9]+, [^,)]*/)) {
        entry = substr(rest, RSTART + 3, RLENGTH - 3); rest = substr(rest, RSTART + RLENGTH)
        x_count[name]++
        x_name[name, x_count[name]] = substr(entry, 1, index(entry, ",") - 1)
        x_second[name, x_count[name]] = substr(entry, index(entry, ",") + 2)
    }
}

function read_statement(text,    name, body) {
    gsub(/[ \t]+/, " ", text)
    if (text ~ /^typedef (struct|enum) [a-z_0-9]+ \{/) {
        split(text, word, " ")
        body = substr(text, index(text, "{") + 1)
        match(body, /\}[^}]*$/)
        name = trimmed(substr(body, RSTART + 1))
        body = substr(body, 1, RSTART - 1)
        if (word[2] == "enum")
            read_enum(name, body)
        else
            read_struct(name, body)
    } else if (text ~ /^typedef [^(]*\(\*[a-z_0-9]+\)/) {
        match(text, /\(\*[a-z_0-9]+/)
        is_function[substr(text, RSTART + 2, RLENGTH - 2)] = 1
    } else if (text ~ /^typedef [a-z_0-9]+ [a-z_0-9]+$/) {
        split(text, word, " ")
        alias[word[3]] = word[2]
    } else if (text ~ /^PL_API /)
        read_function(substr(text, 8))
}

function read_enum(type, body,    part, count, k, m, name, value, list) {
    enums[type] = 1
    count = split(body, part, ",")
    value = -1
    for (k = 1; k <= count; k++) {
        part[k] = trimmed(part[k])
        if (match(part[k], /PL_[A-Z_]+\(PL_X\)/)) {
            list = substr(part[k], RSTART, RLENGTH - 6); name = pattern
            sub(/^[^)]*\) /, "", name)
            sub(/##.*$/, "", name)
            for (m = 1; m <= x_count[list]; m++) {
                value = pattern ~ /= number/ ? x_second[list, m] : value + 1
                add_number(type, (pattern ~ /##/ ? name : "") x_name[list, m], value)
            }
            part[k] = trimmed(substr(part[k], RSTART + RLENGTH))
        }
        if (part[k] !~ /^PL_[A-Za-z_0-9]+/) continue
        match(part[k], /^PL_[A-Za-z_0-9]+/)
        name = substr(part[k], 1, RLENGTH)
        value = index(part[k], "=") ? trimmed(substr(part[k], index(part[k], "=") + 1)) : value + 1
        if (index(part[k], "="))
            flags[type] = type != "pl_code_t"
        add_number(type, name, value)
    }
}

# The word of a number in a record: "macro" of PL_MACRO, "rank0" of PL_AGREE_RANK0.
function add_number(type, name, value,    stem, short) {
    number[++numbers] = name
    number_value[name] = value
    short = tolower(substr(name, 4)); stem = type
    sub(/^pl_/, "", stem)
    sub(/_t$/, "", stem)
    if (index(short, stem "_") == 1)
        short = substr(short, length(stem) + 2)
    words[type] = words[type] (words[type] == "" ? "" : " ") short "=" name
}

# Members as "type|*|name|count", joined by newlines.
function read_struct(type, body,    part, count, k, base, rest, list, m, many, star, name, size) {
    if (body ~ /union|PL_COMPONENT/ && body !~ /^ *PL_COMPONENT;/) return
    sub(/^ *PL_COMPONENT;/, "const char *name; const char *help; size_t size; const void *options; " \
        "const char *(*check)(void);", body)
    count = split(body, part, ";")
    for (k = 1; k <= count; k++) {
        rest = trimmed(part[k])
        if (rest == "") continue
        if (rest ~ /^enum \{/) {
            sub(/^enum \{[^}]*\}/, "int", rest)
        } else if (rest ~ /\(\*[a-z_0-9]+\)\(/) {
            match(rest, /\(\*[a-z_0-9]+/)
            add_member(type, "void", "*", substr(rest, RSTART + 2, RLENGTH - 2), "")
            continue
        }
        gsub(/(const|struct) /, "", rest)
        gsub(/\* const/, "*", rest)
        base = substr(rest, 1, index(rest, " ") - 1)
        many = split(substr(rest, index(rest, " ") + 1), list, ",")
        for (m = 1; m <= many; m++) {
            name = trimmed(list[m])
            star = ""
            while (sub(/^\*/, "", name))
                star = star "*"
            size = ""
            if (match(name, /\[[A-Z_0-9]+\]$/)) {
                size = substr(name, RSTART + 1, RLENGTH - 2); name = substr(name, 1, RSTART - 1)
            }
            add_member(type, base, star, name, size)
        }
    }
    struct[++structs] = type
    is_struct[type] = 1
}

function add_member(type, base, star, name, size) {
    members[type] = members[type] (members[type] == "" ? "" : "\n") base "|" star "|" name "|" size
}

# A function: its result, and its parameters as "type|*|name|const|count".
function read_function(text,    name, head, args, part, count, k, one, type, star, constness, size) {
    sub(/ PL_PRINTF\([0-9, ]*\)$/, "", text)
    if (!match(text, /[a-z_0-9]+\(/)) return
    name = substr(text, RSTART, RLENGTH - 1); head = trimmed(substr(text, 1, RSTART - 1))
    args = substr(text, RSTART + RLENGTH)
    sub(/\)$/, "", args)
    while (match(args, /\(\*[a-z_0-9]*\)\([^()]*\)/) )      # a parameter that is a function
        args = substr(args, 1, RSTART - 1) "*" substr(args, RSTART + 2, index(substr(args, RSTART), ")") - 3) \
            substr(args, RSTART + RLENGTH)
    function_name[++functions] = name
    function_doc[name] = doc
    function_section[name] = section
    sub(/^const /, "", head)
    sub(/^struct /, "", head)
    result[name] = head
    count = args == "void" ? 0 : split(args, part, ",")
    for (k = 1; k <= count; k++) {
        one = trimmed(part[k])
        constness = one ~ /^const / ? "const" : ""
        gsub(/(const|struct) /, "", one)
        gsub(/\* const/, "*", one)
        size = match(one, /\[[A-Z_0-9]+\]$/) ? substr(one, RSTART + 1, RLENGTH - 2) : ""
        if (one == "...") {
            type = "..."; star = ""; one = ""
        } else {
            type = substr(one, 1, index(one, " ") - 1)
            one = trimmed(substr(one, index(one, " ") + 1))
            star = ""
            while (sub(/^\*/, "", one))
                star = star "*"
            if (sub(/\[[A-Z_0-9]*\]$/, "", one))
                star = star "*"
        }
        parameters[name] = parameters[name] (k == 1 ? "" : "\n") type "|" star "|" one "|" constness "|" size
    }
}

# ---- graph functions: arguments as "kind|name|required|C type|where in C|extra" ----

function add_argument(kind, name, required, type, place, extra) {
    argument[++arguments] = kind
    argument_name[arguments] = name
    argument_required[arguments] = required
    argument_type[arguments] = type
    argument_place[arguments] = place
    argument_extra[arguments] = extra
}

# The members of a struct of options; false: one of them is of an unknown type.
function take_options(type, place,    list, count, k, m, base) {
    count = split(members[type], list, "\n")
    for (k = 1; k <= count; k++) {
        split(list[k], m, "|")
        base = m[1] in alias ? alias[m[1]] : m[1]
        if (m[2] == "" && m[4] == "" && base in reader)
            add_argument(reader[base], m[3], 0, base, place "." m[3], "")
        else if (m[2] == "" && m[4] == "" && base in enums)
            add_argument("word", m[3], 0, base, place "." m[3], "")
        else if (m[2] == "" && m[4] != "" && base == "int64_t")
            add_argument("i64s", m[3], 0, base, place "." m[3], m[4])
        else if (m[2] == "*" && (base == "pl_node_t" || base == "pl_init_rule_t"))
            add_argument(reader[base], m[3], 0, base, place "." m[3], "pointer")
        else if (m[2] == "*" && base == "char")
            add_argument("text", m[3], 0, base, place "." m[3], "")
        else if (m[2] == "" && base in is_struct) {
            if (!take_options(base, place "." m[3])) return 0
        } else
            return 0
    }
    return count > 0
}

# Reads the parameters of a function into the arguments, and its call in C into `called`; false: it is no graph
# function, or has a type that a record cannot have.
function take_function(name,    list, count, k, m, base, after, kind) {
    arguments = 0
    called = ""
    counted_options = 0
    further = 0
    if (function_section[name] != "Graphs" || name ~ /^pl_(graph_fail|shape|shape_of|dim|has_input)$/)
        return 0
    base = result[name] in alias ? alias[result[name]] : result[name]
    if (base != "pl_node_t" && base != "pl_metric_t" && base != "void") return 0
    count = split(parameters[name], list, "\n")
    if (list[1] !~ /^(pl_graph_t\|\*|pl_node_t\||pl_loss_t\|)/) return 0
    for (k = 1; k <= count; k++) {
        split(list[k], m, "|")
        split(k < count ? list[k + 1] : "||", after, "|")
        base = m[1] in alias ? alias[m[1]] : m[1]
        called = called (called == "" ? "" : ", ")
        kind = base == "pl_node_t" ? "nodes" : base == "pl_metric_state_t" ? "states" : base == "int" ? "ints" : base == "int64_t" ? "i64s" \
            : base == "double" ? "reals" : ""
        if (base == "pl_graph_t") {
            called = called "calls_->g"
        } else if (m[3] == "format" && after[1] == "...") {
            add_argument("text", "name", 1, base, "name", "")
            called = called "\"%s\", name"
            k++
        } else if (m[2] == "" && base in reader) {
            add_argument(reader[base], m[3], 1, base, m[3], "")
            called = called m[3]
        } else if (m[2] == "" && base in enums) {
            add_argument("word", m[3], 1, base, m[3], "")
            called = called m[3]
        } else if (m[2] == "*" && base == "char") {
            add_argument("text", m[3], 1, base, m[3], "")
            called = called m[3]
        } else if (m[2] == "*" && m[4] == "const" && kind != "" && after[1] == "int" && after[3] ~ /count$/) {
            add_argument(kind, m[3], 1, base, m[3], "counted")
            called = called m[3] ", (int)" m[3] "_count"
            k++
        } else if (m[2] == "*" && m[4] == "const" && (kind == "i64s" || (kind == "ints" && m[5] == ""))) {
            add_argument(kind, m[3], 1, base, m[3], m[5] == "" ? "ranked" : m[5])
            called = called m[3]
        } else if (m[2] == "*" && m[4] == "const" && base in is_struct && base ~ /_options_t$/) {
            options_type = base
            counted_options++
            if (!take_options(base, m[3])) return 0
            called = called "&" m[3]
        } else if (m[2] == "*" && m[4] == "" && base == "pl_node_t" && after[1] != "int") {
            called = called "further[" further++ "]"
        } else
            return 0
    }
    if (further)
        add_argument("bool", "results", 0, "bool", "results", "")
    return 1
}

# ---- writing: records ----

# The call of a function: all arguments are read, then it is called if all of them could be.  No parameter ends with
# an underscore.
function write_call(name,    short, k, list, a, place, local, first) {
    short = substr(name, 4)
    printf "static void call_%s(pl_recorded_t *calls_)\n{\n", short
    if (counted_options)
        printf "    %s options = {0};\n", options_type
    first = ""
    for (k = 1; k <= arguments; k++) {
        a = argument_name[k]; place = argument_place[k]
        kind = argument[k]
        list = "calls_, \"" a "\", " (argument_required[k] ? "true" : "false") ", "
        if (first == "" && kind == "node" && argument_required[k])
            first = place
        if (kind == "text")
            printf "%s%s = pl_recorded_text(%s);\n", place ~ /\./ ? "    " : "    const char *", place,
                substr(list, 1, length(list) - 2)
        else if (kind ~ /^(nodes|states)$/ || argument_extra[k] ~ /^(counted|ranked)$/) {
            printf "    size_t %s_count = 0;\n", place
            printf "    %s *%s = pl_recorded_%s(%s&%s_count);\n", argument_type[k], place, kind, list, place
            if (argument_extra[k] == "ranked")
                printf "    pl_recorded_is_of_rank(calls_, \"%s\", %s_count, %s);\n", a, place, first
        } else if (kind == "i64s") {
            if (place !~ /\./)
                printf "    int64_t %s[%s] = {0};\n", place, argument_extra[k]
            printf "    pl_recorded_numbers(%s%s, %s);\n", list, place, argument_extra[k]
        } else if (argument_extra[k] == "pointer") {
            local = place
            gsub(/\./, "_", local)
            printf "    %s %s;\n", argument_type[k], local
            printf "    if (pl_recorded_%s(%s&%s))\n        %s = &%s;\n", kind, list, local, place, local
        } else if (kind == "word") {
            if (place !~ /\./)
                printf "    %s %s = (%s)0;\n", argument_type[k], place, argument_type[k]
            printf "    int %s_word = 0;\n", a
            printf "    if (pl_recorded_word(%swords_%s, %s, &%s_word))\n        %s = (%s)%s_word;\n", list, argument_type[k],
                (argument_type[k] in flags) && flags[argument_type[k]] ? "true" : "false", a, place, argument_type[k], a
        } else {
            if (place !~ /\./)
                printf "    %s %s = {0};\n", argument_type[k], place
            printf "    pl_recorded_%s(%s&%s);\n", kind, list, place
        }
    }
    print "    if (!pl_recorded_is_ready(calls_))\n        return;"
    if (further) {
        printf "    pl_node_t *further[%d] = {NULL};\n", further
        printf "    for (int at_ = 0; results && at_ < %d; at_++)\n", further
        print "        further[at_] = &calls_->result.further[calls_->result.further_count++];"
    }
    if (result[name] == "void")
        printf "    %s(%s);\n", name, called
    else
        printf "    calls_->result.%s = %s(%s);\n", result[name] == "pl_node_t" ? "node" : "metric", name, called
    print "}\n"
}

function write_record(    k, m, name, list, count, kind, row) {
    print "/* record_functions.inc - the calls of a record: made from paceline.h by generate/interface.awk */"
    for (name in enums)
        used[name] = 0
    for (k = 1; k <= functions; k++)
        if (take_function(function_name[k]))
            for (m = 1; m <= arguments; m++)
                if (argument[m] == "word")
                    used[argument_type[m]] = 1
    for (name in used)
        if (used[name]) {
            printf "static const pl_recorded_word_t words_%s[] = {\n", name
            count = split(words[name], list, " ")
            for (m = 1; m <= count; m++)
                printf "    {\"%s\", %s},\n", substr(list[m], 1, index(list[m], "=") - 1),
                    substr(list[m], index(list[m], "=") + 1)
            print "    {NULL, 0},\n};\n"
        }
    for (k = 1; k <= functions; k++) {
        name = function_name[k]
        if (!take_function(name)) continue
        write_call(name)
        row = ""
        for (m = 1; m <= arguments; m++)
            row = row "\"" (argument[m] ~ /^(nodes?|metric)$/ ? "@" : "") argument_name[m] "\", "
        kind = result[name] == "void" ? "NOTHING" : result[name] == "pl_node_t" ? "NODE" : "METRIC"
        table = table "    {\"" substr(name, 4) "\", PL_RECORDED_" kind ", call_" substr(name, 4) ", {" row "NULL}},\n"
    }
    table = table "    {\"result\", PL_RECORDED_NODE, call_result, {\"@of\", \"number\", NULL}},\n"
    table = table "    {\"tensor\", PL_RECORDED_NODE, call_tensor, {\"dtype\", \"shape\", \"values\", \"base64\", NULL}},\n"
    printf "static const pl_recorded_function_t recorded_functions[] = {\n%s};\n", table
    print "\nstatic void init_read(pl_recorded_t *calls_, const char *rule, const double *a, size_t count, pl_init_rule_t *init)\n{"
    for (k = 1; k <= functions; k++) {
        name = function_name[k]
        if (result[name] != "pl_init_rule_t") continue
        count = parameters[name] == "" ? 0 : split(parameters[name], list, "\n")
        printf "    if (!strcmp(rule, \"%s\") && count == %d) {\n        *init = %s(%s);\n        return;\n    }\n",
            substr(name, 4), count, name, count ? "a[0]" : ""
    }
    print "    pl_recorded_fail(calls_, \"an initialization is {\\\"normal\\\": 0.02} or another of paceline.h, not \\\"%s\\\" \""
    print "                      \"of %zu numbers\", rule, count);\n}"
}

# ---- writing: Python ----

function safe(name) {
    return index(reserved, " " name " ") ? name "_" : name
}

# The type of a struct's member or of a parameter in ctypes.
function python_type(base, star, size, is_member,    type) {
    base = base in alias ? alias[base] : base
    if (star != "")
        type = star == "*" && base == "char" ? "c_char_p" \
            : is_member && star == "*" && base == "pl_result_tensor_t" ? "POINTER(pl_result_tensor_t)" : "c_void_p"
    else
        type = base in python_of ? python_of[base] : base in is_struct ? base : base in enums ? "c_int" \
            : base in is_function ? "c_void_p" : ""
    if (size != "")
        type = type " * " (size in constant ? constant[size] : size)
    return type
}

function write_struct(type,    list, count, k, m, rows) {
    count = split(members[type], list, "\n")
    for (k = 1; k <= count; k++) {
        split(list[k], m, "|")
        if (python_type(m[1], m[2], m[4], 1) == "") return
        rows = rows "        (\"" m[3] "\", " python_type(m[1], m[2], m[4], 1) "),\n"
    }
    printf "class %s(Structure):\n    _fields_ = [\n%s    ]\n\n\n", type, rows
    written[type] = 1
}

function write_prototype(name,    list, count, k, m, row, type, head, star) {
    if (name !~ /^pl_/)                                     # a plug-in defines it
        return
    count = split(parameters[name], list, "\n")
    for (k = 1; k <= count; k++) {
        split(list[k], m, "|")
        if (m[1] == "...") break
        type = m[1] == "char" && m[4] == "" ? "c_void_p" : python_type(m[1], m[2], "", 0)
        if (type == "" || (m[2] == "" && m[1] in is_struct && !(m[1] in written))) return
        row = row (k == 1 ? "" : ", ") type
    }
    head = result[name]
    star = sub(/ ?\*$/, "", head) ? "*" : ""
    # A text of the library's memory is to be freed, so its address is kept.
    type = head == "void" && star == "" ? "None" : star != "" && head == "char" ? \
        (is_owned(name) ? "c_void_p" : "c_char_p") : python_type(head, star, "", 0)
    if (type != "")
        printf "    \"%s\": (%s, [%s]),\n", name, type, row
}

function is_owned(name) {
    return function_doc[name] ~ /pl_text_free\(\)|Paceline.s memory/ || name ~ /^pl_(checkpoint|run|weights|recorder)_/
}

# A method of the graph: the function's own arguments in order, options by name.
function write_method(name, as,    k, text, calls, a, type, has_star, key, value) {
    for (k = 1; k <= arguments; k++) {
        a = argument_name[k]; type = hint[argument[k]]
        key = as "." a
        if (!argument_required[k]) {
            text = text (has_star ? "" : ", *") ", " safe(a) ": Optional[" type "] = None"
            has_star = 1
        } else if (key in fallback)
            text = text ", " safe(a) ": " type " = " fallback[key]
        else if (argument[k] == "bool")
            text = text ", " safe(a) ": bool = False"
        else if (a == "axes")
            text = text ", axes: Ints = ()"
        else
            text = text ", " safe(a) ": " type
        value = argument[k] == "node" ? "self._value(" safe(a) ")" : argument[k] == "nodes" ? "self._values(" safe(a) ")" \
            : safe(a)
        calls = calls ", " (a == safe(a) ? a "=" value : "**{\"" a "\": " value "}")
    }
    printf "    def %s(self%s) -> %s:\n", safe(as), text,
        result[name] == "void" ? "None" : further ? "Any" : result[name] == "pl_node_t" ? "Node" : "Metric"
    write_doc(name, "        ")
    calls = "self._call(\"" substr(name, 4) "\"" calls ")"
    if (further)                                            # results=True: a tuple with them
        calls = "self._results(" calls ", results and " further ")"
    printf "        %s%s\n\n", result[name] == "void" ? "" : "return ", calls
}

function write_doc(name, indent,    text, part, count, k, line) {
    text = function_doc[name]
    gsub(/\\/, "\\\\", text)
    gsub(/"""/, "'''", text)
    count = split("\"\"\"" text "\"\"\"", part, " ")
    line = indent
    for (k = 1; k <= count; k++) {
        if (length(line) + length(part[k]) > 108) {
            print line
            line = indent
        }
        line = line (line == indent ? "" : " ") part[k]
    }
    print line
}

function write_python(    k, name, m, list, count) {
    print "\"\"\"_interface.py - what engine/paceline.h declares, made from it by engine/generate/interface.awk\"\"\""
    print "from __future__ import annotations"
    print "from ctypes import (POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,"
    print "                    c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p)"
    print "from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union\n"
    print "if TYPE_CHECKING:\n    from .graph import Metric, Node\n"
    for (name in constant)
        if (constant[name] ~ /^-?[0-9]+$/)
            printf "%s = %s\n", name, constant[name] | "LC_ALL=C sort"
    close("LC_ALL=C sort")
    for (k = 1; k <= numbers; k++)
        if (number_value[number[k]] ~ /^-?[0-9]+$/)
            printf "%s = %s\n", number[k], number_value[number[k]]
    print "ERRORS = {"
    for (k = 1; k <= x_count["PL_ERRORS"]; k++)
        printf "    %s: \"%s\",\n", x_second["PL_ERRORS", k], x_name["PL_ERRORS", k]
    print "}\nHOOKS = ["
    for (k = 1; k <= x_count["PL_HOOKS"]; k++)
        printf "    %s,\n", x_second["PL_HOOKS", k]
    print "]\n\n"
    for (k = 1; k <= structs; k++)
        write_struct(struct[k])
    print "# The result and the parameters of each function.\nFUNCTIONS = {"
    for (k = 1; k <= functions; k++)
        write_prototype(function_name[k])
    print "}\n\nInit = Mapping[str, Any]\nInts = Union[int, Sequence[int]]\n"
    print "\ndef _rule(name: str, *values: float) -> Init:\n    return {name: list(values)}\n\n"
    for (k = 1; k <= functions; k++) {
        name = function_name[k]
        if (result[name] != "pl_init_rule_t") continue
        split(parameters[name] == "" ? "||" : parameters[name], m, "|")
        printf "def %s(%s) -> Init:\n", substr(name, 4), m[3] == "" ? "" : m[3] ": float"
        write_doc(name, "    ")
        printf "    return _rule(\"%s\"%s)\n\n\n", substr(name, 4), m[3] == "" ? "" : ", " m[3]
    }
    print "Value = Any                             # a Node, a number, or an array of NumPy\n\n"
    print "class Functions:"
    print "    \"\"\"The graph functions of paceline.h. Shapes: B batch, T tokens, C channels or classes.\"\"\"\n"
    print "    def _call(self, function: str, **arguments: Any) -> Any:\n        raise NotImplementedError\n"
    print "    def _value(self, x: Optional[Value]) -> Any:\n        raise NotImplementedError\n"
    print "    def _values(self, x: Sequence[Value]) -> Any:\n        raise NotImplementedError\n"
    print "    def _results(self, first: Any, further: Any) -> Any:\n        raise NotImplementedError\n"
    for (k = 1; k <= functions; k++) {
        name = function_name[k]
        if (!take_function(name) || (name "_with") in parameters) continue
        count = sub(/_with$/, "", name)
        write_method(function_name[k], substr(name, 4))
    }
}

END {
    if (to == "record")
        write_record()
    else
        write_python()
}
