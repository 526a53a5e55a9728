#!/usr/bin/env bash
# wheel.t - tests of the wheel: it brings the library, and needs NumPy alone; pip makes one of the tree
#
# The oldest and the newest interpreter of this machine run it: of PATH, of /usr/bin and of pyenv. One without NumPy gets
# it by pip; where pip reaches no index, those that have NumPy lend it to their environments. WHEEL_PYTHONS="python3.8
# python3.13" names other interpreters, to which pip gives NumPy in any case.
. "$(dirname "$0")/tap.sh"

# interpreters - all that can make environments, from the oldest
interpreters() {
    local version python
    for version in {8..19}; do
        for python in "python3.$version" "/usr/bin/python3.$version" \
            "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$version".*/bin/python; do
            "$python" -c 'import venv, ensurepip' 2>/dev/null && echo "$python"
        done
    done
}

# first_usable PYTHONS... - the first of them that has NumPy, or for which pip gets it into ./index; else why none does
first_usable() {
    local python
    for python; do
        if [ -z "${WHEEL_PYTHONS-}" ] && "$python" -c 'import numpy' 2>/dev/null; then
            echo "$python"
            return
        fi
        if "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
            --retries 0 --timeout 10 -d "index/$python" numpy 2>pip.err; then
            echo "$python"
            return
        fi
        echo "# $python has no NumPy, and pip gets none: $(tail -n 1 pip.err)" >&2
    done
    return 1
}

# environment PYTHON - a new environment in ./env, with the wheel and a NumPy of its own, or one that is lent
environment() {
    rm -rf env
    if [ -d "index/$1" ]; then
        "$1" -m venv env && env/bin/pip install -q --disable-pip-version-check --no-index "index/$1"/*.whl
    else
        "$1" -m venv --system-site-packages env
    fi && env/bin/pip install -q --disable-pip-version-check --no-index --no-deps wheel/*.whl
}

a_wheel_is_made_without_a_network() {
    try env PYTHONPATH="$srcdir/python" PACELINE_BUILD="$builddir" "$1" -c '
import os, build_package
os.makedirs("wheel")
print(build_package.build_wheel("wheel"))'
    is "$status$err" 0 "it is made"
    like "$out" '^paceline-[0-9.]+-py3-none-linux_x86_64\.whl$' "its name has version and platform"
    "$1" -m zipfile -l "wheel/$out" >files
    for file in paceline/_interface.py paceline/py.typed paceline/lib/libpaceline.so.0 'libzmq' 'libFLAC' 'libwebp' 'dist-info/RECORD'; do
        ok "it has $file" grep -q "$file" files
    done
}

an_environment_has_all_it_needs() {
    ok "$1: pip installs it" environment "$1"
    # Libraries of the system are not looked at: those of the wheel are loaded already.
    try env -i PATH="$PATH" HOME="$folder" env/bin/python -c '
import ctypes, os, sys
import numpy as np, paceline as pl

@pl.module
def net(g, hidden=8, classes=2):
    h = g.linear("fc2", g.relu(g.linear("fc1", g.input("x"), hidden)), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))

x = np.random.default_rng(1).uniform(-1, 1, (400, 2)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
options = {"max_epochs": 20, "optimizer": pl.adamw(lr=1e-2), "default_root_dir": sys.argv[1], "progress": False}
result = pl.fit(net, (x, y), **options)
print("right", (result.predict(x).argmax(1) == y).mean() > 0.9)
apart = pl.fit(net, (x, y), strategy="ddp", devices=2, launcher="spawn", **options)
print("apart", apart.status)
print("plug-in", pl.fit(pl.component("mlp", hidden=[8]), (x, y), **options).status)
formats = ("libspng.so.0", "libsndfile.so.1", "libsqlite3.so.0")
for name in formats:                                        # as the engine does
    ctypes.CDLL(name)
maps = open("/proc/self/maps").read()
for name in ("libpaceline", "libzmq", "libevent", *formats):
    print(name, {os.path.realpath(line.split()[-1]).startswith(os.path.realpath(sys.prefix))
                 for line in maps.splitlines() if name in line})
' "$folder/$1"
    is "$status" 0 "$1: a program trains"
    like "$out" '^right True' "$1: and predicts"
    like "$out" '^apart ok' "$1: ranks are started from the environment"
    like "$out" '^plug-in ok' "$1: the modules of the wheel are found"
    for name in libpaceline libzmq libevent libspng.so.0 libsndfile.so.1 libsqlite3.so.0; do
        like "$out" "^$name \\{True\\}" "$1: $name comes from the wheel"
    done
}

# In the environment of the test before, whose wheel is removed.
pip_installs_the_tree() {
    local pip=(env/bin/python -m pip --disable-pip-version-check)
    "${pip[@]}" uninstall -q -y paceline 2>pip.err
    ok "$1: without the wheel there is no package" not_installed
    try env PACELINE_BUILD="$builddir" "${pip[@]}" install -q --no-cache-dir --no-index --no-deps "$srcdir"
    is "$status" 0 "$1: pip install takes the tree, without a network: $err"
    try env -i PATH="$PATH" HOME="$folder" env/bin/python -c '
import os, sys, paceline
print(os.path.realpath(paceline.__file__).startswith(os.path.realpath(sys.prefix)))
print({os.path.realpath(line.split()[-1]).startswith(os.path.realpath(sys.prefix))
       for line in open("/proc/self/maps") if "libpaceline" in line})'
    is "$out" $'True\n{True}' "$1: the package and the library are in the environment: $err"
}

not_installed() {
    ! env -i PATH="$PATH" env/bin/python -c 'import paceline' 2>/dev/null
}

the_oldest_python_can_read_the_package() {
    try "$1" -c '
import ast, glob, sys
for path in glob.glob(sys.argv[1] + "/python/paceline/*.py") + [sys.argv[2] + "/python-package/paceline/_interface.py"]:
    ast.parse(open(path).read(), path, feature_version=(3, 8))' "$srcdir" "$builddir"
    is "$status$err" 0 "Python 3.8 can parse it"
}

mapfile -t all < <(if [ -n "${WHEEL_PYTHONS-}" ]; then xargs -n 1 <<<"$WHEEL_PYTHONS"; else interpreters; fi)
if [ -n "$(sanitized)" ]; then
    skip "Python without the sanitizer cannot load the library"
elif ! oldest=$(first_usable "${all[@]}"); then
    skip "no Python with venv, pip and NumPy here"
else
    mapfile -t all < <(printf '%s\n' "${all[@]}" | tac)
    newest=$(first_usable "${all[@]}")
    export PYTHONDONTWRITEBYTECODE=1
    echo "# $("$oldest" -V) and $("$newest" -V)"
    the_oldest_python_can_read_the_package "$newest"
    a_wheel_is_made_without_a_network "$oldest"
    an_environment_has_all_it_needs "$oldest"
    [ "$oldest" = "$newest" ] || an_environment_has_all_it_needs "$newest"
    pip_installs_the_tree "$newest"
fi
done_testing
