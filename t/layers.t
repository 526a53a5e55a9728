#!/bin/sh
# layers.t - the layers of the sources: allowed includes, and definitions that may stand in one place only
#
# Searches code, not comments and texts: sources are stripped of those first, line by line.
builddir=$(cd "${top_builddir:-.}" && pwd)
cd "${top_srcdir:-.}" || exit 99
stripped=$(mktemp) && comments=$(mktemp) || exit 99
trap 'rm -f "$stripped" "$comments"' EXIT

find engine accelerators strategies actors -name '*.[ch]' | LC_ALL=C sort | xargs awk -v comments="$comments" '
FNR == 1 { inside = 0 }
{
    line = $0
    include = line ~ /^[ \t]*#[ \t]*include/
    if (!include)
        gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    out = said = ""
    while (line != "") {
        if (inside) {
            end = index(line, "*/")
            if (!end) { said = said line; line = ""; break }
            said = said substr(line, 1, end - 1) " "
            line = substr(line, end + 2); inside = 0
        } else {
            begin = index(line, "/*")
            if (!begin) { out = out line; line = ""; break }
            out = out substr(line, 1, begin - 1); line = substr(line, begin + 2); inside = 1
        }
    }
    if (out ~ /[^ \t]/)
        print FILENAME ":" FNR ":" out
    if (said != "")
        print FILENAME ":" FNR ":" said >comments
}' > "$stripped"

# holds SENTENCE < offending lines
holds()
{
    found=$(cat)
    [ -z "$found" ] || printf 'not '
    echo "ok - $1"
    [ -z "$found" ] || echo "$found" | sed 's/^/#   /'
}

# lines FILES PATTERN: lines of code of files (an expression for paths) that match
lines()
{
    grep -E "^($1)[^:]*:" "$stripped" | grep -E "^[^:]*:[0-9]*:.*($2)"
}

# includes FILES FOLDERS
includes()
{
    lines "$1" "#[[:space:]]*include[[:space:]]*[\"<]($2)"
}

not_in()
{
    grep -Ev "^($1)"
}

# Where searching finds nothing, nothing may be there: so it is shown that it finds.
finds()
{
    grep -q . && echo "ok - $1" || echo "not ok - $1"
}

{
# ---- the search itself ----

lines 'engine/transport/socket_turn\.c' '\<zmq_msg_recv[[:space:]]*\(' | finds 'a call is found'
includes 'accelerators/cpu/library_onednn\.c' '(dnnl|oneapi/)' | finds 'and an include'
lines 'engine/transport/socket\.c' 'the one wrapper around ZeroMQ' | holds 'comments are not searched'
lines 'engine/runtime/deliver\.c' 'calls only go down' | holds 'nor are texts'

# ---- floors ----

includes 'engine/(base|formats|runtime|telemetry|tensor|transport)/|engine/paceline.h' '(accelerators|strategies|actors|cli|t)/' |
    holds 'engine/ includes nothing of accelerators/, strategies/, actors/ or the command'
lines 'engine/cli/' '#[[:space:]]*include[[:space:]]*"' | grep -Ev '"(paceline\.h|config\.h|cli/[a-z_]+\.(h|def))"' |
    holds 'the command includes paceline.h and nothing else of the engine'
includes 'accelerators/' '(strategies|actors|cli)/' |
    holds 'accelerators/ includes nothing of strategies/ or actors/'
includes 'strategies/' '(actors|cli)/' |
    holds 'strategies/ includes nothing of actors/'
includes 'engine/base/' '(runtime|tensor|formats|telemetry|transport)/' |
    holds 'engine/base/ includes nothing of the rest of the engine'
includes 'engine/transport/' '(runtime|tensor|formats|telemetry)/' |
    holds 'engine/transport/ includes nothing of the engine but base/'
includes 'engine/runtime/' 'transport/' | finds 'runtime/ includes sockets'
includes 'engine/runtime/' 'transport/' | grep -Ev '"transport/(endpoint|frame|keys|socket|tsan_annotations)\.h"' |
    holds 'engine/runtime/ includes nothing of links, bulk data and processes'
own='start|stop|run'
lines 'engine/runtime/(actor|actors|call|deliver|limits|reactor|runtime|message|message_json|kind|tap|monitor[a-z_]*)\.[ch]' "PL_MESSAGE_($own)" |
    finds 'messages that the runtime knows are found'
lines 'engine/runtime/' 'PL_MESSAGE_[a-z]' | grep -vE "PL_MESSAGE_($own)\>" |
    holds "of all messages the runtime knows only $own"
includes 'engine/(base|formats|runtime|tensor|transport)/' 'telemetry/' |
    holds 'the rest of the engine includes nothing of telemetry/'
includes 'engine/(runtime|telemetry|tensor|formats)/' 'zmq' |
    holds 'in the engine only transport/ knows ZeroMQ'
includes 'engine/(telemetry|tensor|formats)/' 'event2/' | not_in 'engine/telemetry/' |
    holds 'in the engine only transport/, runtime/ and telemetry/ know libevent'

# ---- actors ----

includes 'actors/connectors/' 'actors/(loops|launchers|worker|trainer|api/)' |
    holds 'connectors include nothing of loops, launchers, worker or trainer'
includes 'actors/loops/' 'actors/(connectors|launchers|worker|trainer|api/)' |
    holds 'loops include nothing of connectors, launchers, worker or trainer'
includes 'actors/launchers/' 'actors/(connectors|loops|worker/|trainer|api/)' |
    holds 'launchers include nothing of connectors, loops or trainer'
includes 'actors/worker/' 'actors/(launchers|trainer|api/)' |
    holds 'the worker includes nothing of launchers or trainer'
includes 'actors/trainer\.' '(accelerators|strategies)/|actors/(connectors|loops|launchers|worker|api/)' |
    holds 'the trainer includes no other actor'

# An actor of a folder is a file with a table of that level; no other file of the folder includes its header.
for folder in connectors:CONNECTOR launchers:LAUNCHER 'loops:(FIT_LOOP|EPOCH_LOOP|EVAL_LOOP)'; do
    where=actors/${folder%%:*}
    lines "$where/" "\.level = PL_LEVEL_${folder#*:}" | cut -d: -f1 | LC_ALL=C sort -u |
        while read -r file; do
            base=${file%.c}
            includes "$where/" "$base\.h" | not_in "$base(_[a-z_]*)?\.[ch]:"
        done | holds "no file of $where/ includes the header of another actor there"
done
# The trainer and the headers of actors/ that it includes, and theirs: in code, comments and texts.
trainer='actors/trainer.c actors/trainer.h' read=
while [ "$trainer" != "$read" ]; do
    read=$trainer
    trainer=$(for file in $read; do
        echo "$file"
        sed -n 's/^#[[:space:]]*include "\(actors\/.*\)"/\1/p' "$file"
    done | LC_ALL=C sort -u)
done
# words FILES: lines with a word of processes, devices or gradients; pl_spawn() starts an actor
words()
{
    sed 's/pl_spawn(/pl_start_actor(/g' "$@" | grep -inE \
        '\<v?fork|\<pid|getpid|waitpid|\<kill|posix_spawn|\<exec|spawn|process(es)?\>|signal|thread_|pipe\>|socket|\<ssh|mpi(run)?\>|slurm|inline|script|external|world|local_rank|node|device|gradient'
}
words actors/launchers/local.c | finds 'words of processes are found'
echo "$trainer" | grep request.h | finds 'and what the trainer includes'
words $trainer | holds 'the trainer has no word for processes, devices or gradients'

# ---- one place ----

lines '' '\<zmq_(send|recv|msg_send|msg_recv|sendmsg|recvmsg|poll|poller_[a-z_]+|setsockopt|getsockopt|socket|bind|connect|close)[[:space:]]*\(' |
    not_in 'engine/transport/socket(_turn)?\.c:|engine/cli/endpoint_client\.c:' |
    holds 'ZeroMQ sockets are sent to, received from and polled in engine/transport/socket.c and socket_turn.c (the command is a client)'
lines '' '\<pthread_create[[:space:]]*\(' | not_in 'engine/base/thread\.c:|accelerators/cpu/parallel|accelerators/(staging|gpu/build|cuda/[a-z_]+)\.c:|engine/transport/lookup\.c:|engine/formats/(checkpoint_read|direct_io)\.c:' |
    holds 'threads are started by base/thread.c, by the pool of parallel loops, to touch memory, to compile kernels, by devices, for large files, and to look up a name'
grep -rnE 'omp[[:space:]]+(parallel|for|sections|task|single|barrier)|omp_(get|set)_' --include='*.[ch]' \
    engine accelerators strategies actors | not_in 'accelerators/cpu/library_onednn\.c' |
    holds 'OpenMP, whose threads spin, is known to the file of the library that brings it'
includes '' '(dnnl|oneapi/)' | not_in 'accelerators/cpu/library_onednn\.c:' |
    holds 'oneDNN is known to its one file'
# A search for a type name finds one definition. The dialect of kernels is a language of its own.
# defined: lines "FILE:LINE: NAME", one for each typedef
defined()
{
    not_in 'accelerators/gpu/kernels/dialect\.h:' <"$stripped" |
        sed -nE 's/^([^:]*:[0-9]*:)([ \t]*\}|.*\<typedef [^()]*)[ \t]*\<([a-z0-9_]+_t);.*/\1 \3/p;
            s/^([^:]*:[0-9]*:).*\<typedef [^(]*\(\*?([a-z0-9_]+_t)\)\(.*/\1 \2/p'
}
defined | grep 'engine/paceline\.h:.* pl_engine_t$' | finds 'definitions of types are found'
defined | LC_ALL=C sort -k2,2 | awk '{ at = $1; sub(/:[0-9]*:$/, "", at); if ($2 == name && at != file) print first, $0; else first = $0 }
    { name = $2; file = at }' | holds 'each type name has one definition'

# ---- examples ----

# All that the engine has but paceline.h lies in folders.  An accelerator, a launcher, a collective and a strategy need
# the header of their role.
grep -n '#include <paceline\.h>' examples/mlp.c | finds 'includes of examples are found'
grep -nE '^[[:space:]]*#[[:space:]]*include' examples/*.[ch] | not_in 'examples/(counting|lone|metered|vote)\.c:' |
    not_in 'examples/train_[a-z]*\.c:[0-9]*:#include "train_service\.h"' |
    grep -Ev '<([a-z]+\.h|(event2|sys)/[a-z]+\.h)>' |
    holds 'examples include paceline.h and what is the system'"'"'s, modules all of them'
while read -r most file; do
    [ "$(wc -l <"examples/$file")" -le "$most" ] || echo "$file"
done <<'END' | holds 'examples that are to be read at once are as short as was promised'
80 embed.c
150 vote.c
END

# ---- a library's manners ----

library='engine/(base|formats|runtime|telemetry|tensor|transport)/|accelerators/|strategies/|actors/'

lines "$library" '\<(printf|vprintf|puts|putchar|perror)[[:space:]]*\(|\<(stdout|stderr)\>' |
    not_in 'actors/launchers/rank_process\.c:' | holds 'the library prints nothing (to the process of a rank it is the program)'
lines "$library" \
    '\<(exit|_exit|_Exit|quick_exit|abort|atexit|signal|sigaction|sigprocmask|setlocale|setrlimit|chdir|umask|fork|vfork|system|popen|srand|putenv|setenv|unsetenv)[[:space:]]*\(' |
    not_in 'actors/launchers/rank_process\.c:|accelerators/gpu/build\.c:.*atexit\([a-z_]*\)|[^:]*:[0-9]*:.*->abort\(' |
    holds 'nor does it exit, abort, or change what is the host'"'"'s: signals, limits, locale, environment'
lines "$library" \
    '\<(malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)[[:space:]]*\(' |
    not_in 'engine/base/alloc\.c:|engine/base/plugin\.c:[0-9]*:.*free\(entries' |
    holds 'memory comes from the host'"'"'s hooks'
nm -D --defined-only "$builddir/.libs/libpaceline.so" 2>&1 |
    awk '$NF != "PACELINE_0" && $NF !~ /^pl_[a-z0-9_]+@@PACELINE_0$/' |
    holds 'it shows symbols of its own alone, each with a version'

# ---- files ----

find engine accelerators strategies actors t examples -name '*.[ch]' | LC_ALL=C sort |
    while read -r file; do
        name=${file##*/}
        head -1 "$file" | grep -q "^/\* $name - ." || echo "$file"
    done | holds 'every file says in its first line what it is'
find engine accelerators strategies actors examples -name '*.[ch]' | LC_ALL=C sort |
    while read -r file; do
        grep -qF "$file" Makefile.am || echo "$file"
    done | holds 'every file stands in Makefile.am, so that a distribution has it'
find engine accelerators strategies actors examples -name '*.[ch]' | LC_ALL=C sort | xargs wc -l |
    awk '$2 != "total" && $1 > 600 && $2 != "engine/paceline.h"' | holds 'no file is longer than 600 lines'
find engine accelerators strategies actors examples t -name '*.[ch]' | LC_ALL=C sort |
    LC_ALL=C.UTF-8 xargs grep -nE '^.{91}' | holds 'no line is longer than 90 characters'
LC_ALL=C.UTF-8 grep -nE '^[^|].{120}' doc/architecture.md | holds 'nor one of the map than 120, but for tables'
grep -oE '^[^:]*:[0-9]*:|(^|[^A-Za-z0-9_./*])[a-z][a-z0-9_/]*\.(c|h|def|t)\>' "$comments" |
    sed 's/^[^:a-z]//' | awk '/:$/ { at = $0; next } { print at $0 }' >"$stripped"
finds 'files are named in comments' <"$stripped"
find . -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.t' |
    awk -F: 'NR == FNR { path[$0] = 1; sub(/.*\//, ""); path[$0] = 1; next }
        { found = 0; for (p in path) if (p == $3 || substr(p, length(p) - length($3)) == "/" $3) { found = 1; break } }
        !found' - "$stripped" | holds 'and all of them are there'
grep -rnE '\<(TODO|FIXME|XXX|HACK)\>' --include='*.[ch]' --include='*.def' engine accelerators strategies actors examples |
    holds 'nothing is left for later'
} | awk '/^(not )?ok - / { sub(/ok - /, "ok " ++tests " - ") } { print } END { print "1.." tests }'
