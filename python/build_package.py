"""build_package.py - the wheel, for `pip install .` and `make wheel`: the package, the library, and what it needs

The libraries keep their names.  The package loads them one after the other before it uses them (order.txt), so nothing
is searched for and no file is changed.  The engine opens some only for data of a kind, such as pictures: those that are
installed here come along, and it finds them loaded (formats.txt).  The C library, the compiler's own libraries and HDF5,
which needs thirty others, are those of the system.

PACELINE_BUILD names the folder in which `make` has built the library  [build/ or the tree itself; if there is none, it
is configured and built in build/].
"""
import base64
import hashlib
import os
import re
import subprocess
import sysconfig
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
OF_THE_SYSTEM = re.compile(r"(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|libgcc_s\.|libstdc\+\+\."
                           r"|linux-vdso)")
PLUGINS = ("examples", "accelerators/cuda", "accelerators/opencl", "actors/connectors/loggers",
           "strategies/collectives")


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("the source is not distributed as a Python package: use `make dist`")


def build_folder():
    """The folder with the built library; built if there is none."""
    for folder in (os.environ.get("PACELINE_BUILD"), TREE / "build", TREE):
        if folder and (Path(folder) / ".libs/libpaceline.so.0").exists():
            return Path(folder)
    build = TREE / "build"
    build.mkdir(exist_ok=True)
    if not (TREE / "configure").exists():
        subprocess.run(["autoreconf", "-i"], cwd=TREE, check=True)
    subprocess.run(["../configure"], cwd=build, check=True)
    subprocess.run(["make", f"-j{os.cpu_count()}"], cwd=build, check=True)
    return build


def needed(library):
    """The libraries that a library loads, in an order in which they can be loaded; None: one of them is missing."""
    listed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
    if "not found" in listed.replace("libpaceline.so.0 => not found", ""):
        return None
    paths = [Path(path) for path in re.findall(r"=> (/\S+)", listed) if not OF_THE_SYSTEM.match(Path(path).name)]
    ordered = []

    def put(path):
        direct = subprocess.run(["objdump", "-p", str(path)], capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"NEEDED\s+(\S+)", direct):
            for other in paths:
                if other.name == name and other not in ordered and other != path:
                    put(other)
        if path not in ordered:
            ordered.append(path)
    for path in paths:
        put(path)
    return ordered


def of_formats():
    """The libraries that the engine opens for data of a kind, as far as they are here; what each needs before it."""
    try:
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):        # a system without that list: they are the system's
        return []
    ordered = []
    for source in sorted((TREE / "engine/formats").glob("*.c")):
        for name in re.findall(r'"(lib\w+\.so\.\d+)"', source.read_text()):
            found = re.search(rf"{re.escape(name)} .*=> (/\S+)", known)
            if not found or name.startswith("libhdf5"):
                continue
            path = Path(found.group(1))
            ordered += [each for each in [*(needed(path) or []), path] if each not in ordered]
    return ordered


def contents(build):
    """The files of the wheel: (name in it, bytes, whether it is a program)."""
    for path in sorted((TREE / "python/paceline").iterdir()):
        if path.suffix in (".py", ".typed") and path.name != "_interface.py":
            yield f"paceline/{path.name}", path.read_bytes()
    awk = ["awk", "-v", "to=python", "-f", TREE / "engine/generate/interface.awk", TREE / "engine/paceline.h"]
    yield "paceline/_interface.py", subprocess.run(awk, capture_output=True, check=True,
                                                   env={**os.environ, "LC_ALL": "C"}).stdout
    library = build / ".libs/libpaceline.so.0"
    libraries = needed(library)
    if libraries is None:
        raise SystemExit(f"{library} needs libraries that are missing here: see `ldd {library}`")
    names = [path.name for path in libraries] + [library.name]
    more = [path for path in of_formats() if path.name not in names]
    for path in [*libraries, library, *more]:
        yield f"paceline/lib/{path.name}", path.read_bytes()
    yield "paceline/lib/order.txt", "\n".join(names).encode()
    yield "paceline/lib/formats.txt", "\n".join(path.name for path in more).encode()
    for folder in PLUGINS:
        for path in sorted((build / folder / ".libs").glob("*.so")):
            others = needed(path)
            if others is not None and all(other.name in names for other in others):
                yield f"paceline/lib/plugins/{path.name}", path.read_bytes()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel into a folder, and returns its name."""
    version = re.search(r"AC_INIT\(\[[^\]]*\],\s*\[?([0-9][^\],)]*)", (TREE / "configure.ac").read_text()).group(1)
    tag = f"py3-none-{re.sub('[-.]', '_', sysconfig.get_platform())}"
    name, info = f"paceline-{version}-{tag}.whl", f"paceline-{version}.dist-info"
    about = {"METADATA": f"Metadata-Version: 2.1\nName: paceline\nVersion: {version}\n"
                         "Summary: train neural networks inside a program\n"
                         "Requires-Python: >=3.8\nRequires-Dist: numpy\n",
             "WHEEL": f"Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: false\nTag: {tag}\n",
             "LICENSE": (TREE / "LICENSE").read_text()}
    rows = []
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        def put(path, data):
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(data)}")
        for path, data in contents(build_folder()):
            put(path, data)
        for path, text in about.items():
            put(f"{info}/{path}", text.encode())
        rows.append(f"{info}/RECORD,,\n")
        wheel.writestr(f"{info}/RECORD", "\n".join(rows))
    return name
