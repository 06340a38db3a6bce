"""The processes of a job, by its jobspec and R: command, environment, files and cores of each task.

The environment of a task is that of the jobspec, with what the instance adds, and with

- `FLUX_JOB_ID` (F58), `FLUX_JOB_SIZE` (tasks), `FLUX_JOB_NNODES` (ranks of R),
- `FLUX_JOB_ID_PATH`, if the instance tells its own: the jobs around this one, the outermost first,
  and `FLUX_KVS_NAMESPACE`, both as flux-core's brokers read them in a job,
- `FLUX_JOB_TMPDIR`, if the instance has directories for jobs: with the files of the jobspec,
- `FLUX_TASK_RANK` (in the job), `FLUX_TASK_LOCAL_ID` (on its rank),
- `FLUX_TRIO_RANK` and `FLUX_TRIO_HOST`: its execution target,
- CUDA_VISIBLE_DEVICES: its gpus.

Tags of `templates` are filled in: in its command, in the paths of its files, and in the variables
of the shell option `env-expand`. Other shell options, as in flux-core:

- `rlimit`: soft limits by name, such as `{"nofile": 1024, "core": -1}`; -1 means no limit.
- `output.stdout`, `output.stderr` and `input.stdin`: {"type": "file", "path"}; without
  `output.stderr` errors go to the file for output, and with {"type": "kvs"} they do not.
  `output.mode`: whether a file is emptied first. With `label` in `output.stdout`, and so for errors
  that go to the same file, each line in the file begins with the number of its task.
- `cpu-affinity` and `gpu-affinity`: with `on`, the default, a task may use all that R has on its
  rank; with `per-task` it may use its share of that; with `off` cores are not bound and gpus are
  not named. CUDA_VISIBLE_DEVICES names the gpus; -1 stands for no gpu.

Left out: `map:` and the other forms of flux-core's `cpu-affinity`.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from flux_trio.cores.exec.placement import LayoutError, Placement
from flux_trio.cores.exec.pmi import has_pmi, pmi_values
from flux_trio.cores.exec.templates import filled_in, job_tags, node_tags, task_tags
from flux_trio.formats import FluidForm, FormatError, Jobspec, ResourceSet, converted, format_fluid
from flux_trio.shell.protocol import STREAMS, Start, Task, TravelingFile

Affinity: TypeAlias = Literal["on", "off", "per-task"]

CPU_AFFINITY: Final = "system.shell.options.cpu-affinity"
GPU_AFFINITY: Final = "system.shell.options.gpu-affinity"
GPU_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # what the numbers of R's gpus mean


class Affinities(NamedTuple):
    """How the tasks of a job are bound."""

    cores: Affinity
    gpus: Affinity


def bound_cores(affinity: Affinity, cores: Sequence[int], local_id: int, ntasks: int) -> list[int]:
    """Return the cores of one of `ntasks` tasks on a rank; an empty list means no binding.

    Tasks share cores if there are more tasks than cores.
    """
    if affinity == "off":
        return []
    if affinity == "on" or not cores:
        return list(cores)
    if ntasks > len(cores):
        return [cores[local_id * len(cores) // ntasks]]
    return _share(cores, local_id, ntasks)


def gpu_environment(
    affinity: Affinity, gpus: Sequence[int], local_id: int, ntasks: int
) -> dict[str, str]:
    """Return the environment variables that tell a task its gpus."""
    if affinity == "off":
        return {}
    if affinity == "per-task":  # gpus that cannot be divided evenly are left over, as in flux-core
        each = len(gpus) // ntasks
        gpus = gpus[local_id * each : (local_id + 1) * each]
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)) or "-1"}


def _affinity(jobspec: Jobspec, option: str) -> Affinity:
    value = jobspec.attribute(option)
    if value is None:
        return "on"
    if value not in get_args(Affinity):
        known = ", ".join(get_args(Affinity))
        raise LayoutError(f"{option}: expected one of {known}, got {value!r}")
    return cast(Affinity, value)


def _share(cores: Sequence[int], local_id: int, ntasks: int) -> list[int]:
    share, more = divmod(len(cores), ntasks)
    begin = local_id * share + min(local_id, more)
    return list(cores[begin : begin + share + (local_id < more)])


OUTPUT_MODE: Final = "system.shell.options.output.mode"
_PLACES: Final = (("input", "stdin"), ("output", "stdout"), ("output", "stderr"))


def redirects_of(jobspec: Jobspec) -> dict[str, str]:
    """Return the path template of each stream that has a file."""
    found, kept = {}, set[str]()
    for direction, stream in _PLACES:
        value = jobspec.attribute(f"system.shell.options.{direction}.{stream}")
        if isinstance(value, dict) and value.get("type") == "file":
            path = value.get("path")
            if isinstance(path, str) and path:
                found[stream] = path
        elif isinstance(value, dict) and value.get("type") == "kvs":
            kept.add(stream)
    if "stdout" in found and "stderr" not in kept:
        found.setdefault("stderr", found["stdout"])
    return found


def labeled_streams(jobspec: Jobspec) -> list[str]:
    """Return the streams whose files have labels: errors have what output has, unless told."""
    found, label = list[str](), False
    files = redirects_of(jobspec)
    for stream in STREAMS:
        value = jobspec.attribute(f"system.shell.options.output.{stream}")
        if isinstance(value, dict):
            label = value.get("label", label) is True
        if label and stream in files:
            found.append(stream)
    return found


def told_paths(
    jobid: int, jobspec: Jobspec, resources: ResourceSet, ntasks: int, id_form: FluidForm
) -> dict[str, str]:
    """Return the files of the streams of output, as the log of the output tells them.

    What is different for each node or task stays a tag, as in flux-core.
    """
    name = format_fluid(jobid, id_form)
    tags = job_tags(jobid, name, jobspec, ntasks, resources.nnodes)
    return {
        stream: filled_in(path, tags)
        for stream, path in redirects_of(jobspec).items()
        if stream in STREAMS
    }


STDIN: Final = "system.shell.options.input.stdin"
VERBOSE: Final = "system.shell.options.verbose"


def takes_input(jobspec: Jobspec) -> bool:
    """Return whether the tasks read the input that commands send to the job, as in flux-core.

    Raises FormatError if the jobspec names no kind of input, or a file without its path.
    """
    value = jobspec.attribute(STDIN)
    options = value if isinstance(value, dict) else {}
    kind = options.get("type")
    if kind not in (None, "service", "file"):
        raise FormatError("service or file", kind, f"{STDIN}.type")
    if kind == "file" and "stdin" not in redirects_of(jobspec):
        raise FormatError("the path of a file", options.get("path"), f"{STDIN}.path")
    return kind == "service"


def is_unbuffered(jobspec: Jobspec) -> bool:
    """Return whether readers of standard output are not to wait for whole lines."""
    return jobspec.attribute("system.shell.options.output.stdout.buffer.type") == "none"


PTY: Final = "system.shell.options.pty"
_INSTANCES: Final = (["flux", "broker"], ["flux", "start"])


def check_terminal(jobspec: Jobspec) -> None:
    """Raise LayoutError if the tasks are to have an interactive terminal: there are none.

    `flux alloc` at a terminal asks for one too, but an instance with a command needs none.
    """
    pty = jobspec.attribute(PTY)
    if not (isinstance(pty, dict) and pty.get("interactive")):
        return
    before, words = list(jobspec.tasks[0].command[:2]), jobspec.tasks[0].command[2:]
    if before not in _INSTANCES:
        raise LayoutError("pty.interactive: there are no pseudo-terminals: tasks read pipes")
    if all(word[:1] == "-" for word in words):
        text = (
            "pty.interactive: there are no pseudo-terminals: flux alloc --bg, then flux proxy JOB"
        )
        raise LayoutError(text)


def remarks_of(jobspec: Jobspec) -> list[str]:
    """Return what a job's user is warned of before it starts."""
    mode = jobspec.attribute(OUTPUT_MODE)
    if mode in (None, "append", "truncate"):
        return []
    return [f"output: ignoring invalid output.mode={mode}: expected append or truncate"]


RLIMIT: Final = "system.shell.options.rlimit"
UNLIMITED: Final = -1
LIMITS: Final = (
    "as", "core", "cpu", "data", "fsize", "memlock", "msgqueue", "nice", "nofile", "nproc", "ofile",
    "rss", "rtprio", "rttime", "sigpending", "stack",
)  # fmt: skip

_Limit = Annotated[int, msgspec.Meta(ge=UNLIMITED, le=(1 << 63) - 1)]


def limits_of(jobspec: Jobspec) -> dict[str, int]:
    """Return the soft limits that a jobspec asks for. Raises FormatError."""
    value = jobspec.attribute(RLIMIT)
    limits = {} if value is None else converted(value, dict[str, _Limit], RLIMIT)
    for name in limits:
        if name not in LIMITS:
            raise FormatError(f"names of limits ({', '.join(LIMITS)})", name, RLIMIT)
    return limits


FILES: Final = "system.files"
TMPDIR_VARIABLE: Final = "FLUX_JOB_TMPDIR"
PATH_VARIABLE: Final = "FLUX_JOB_ID_PATH"
TOP: Final = "/"  # the path of an instance that is in no job
FORCE_ASCII: Final = "FLUX_F58_FORCE_ASCII"  # a variable of a job that asks for ids in ASCII
ENV_EXPAND: Final = "system.shell.options.env-expand"
_TMPDIR: Final = "{{tmpdir}}"

FILLED_CHARS_MAX: Final = 16 << 20
"""Characters of all tasks of a job together in what has tags: each task has its own copy."""


def start_request(
    jobid: int,
    jobspec: Jobspec,
    resources: ResourceSet,
    placements: list[Placement],
    environment: Mapping[str, str],
    id_form: FluidForm = "f58",
) -> Start:
    """Return the request to launch a job; the instance adds `environment`.

    The job id has the F58 form `id_form`, in ASCII if the job's environment asks for it. Raises
    LayoutError or FormatError.
    """
    given = {key: value for key, value in jobspec.environment.items() if value is not None}
    name = format_fluid(jobid, "f58plain" if FORCE_ASCII in given else id_form)
    of_job = {
        "FLUX_JOB_ID": name,
        "FLUX_JOB_SIZE": str(len(placements)),
        "FLUX_JOB_NNODES": str(resources.nnodes),
    }
    affinities = Affinities(_affinity(jobspec, CPU_AFFINITY), _affinity(jobspec, GPU_AFFINITY))
    tasks = _bound(affinities, resources, placements)
    command = list(jobspec.tasks[0].command)
    base = environment.get(TMPDIR_VARIABLE)
    tmpdir = "" if base is None else f"{base}/{jobid}"
    templates = _Templates(jobspec, tmpdir)
    if templates:
        tasks = templates.fill_in(jobid, name, resources, placements, tasks)
    order = {} if affinities.gpus == "off" else GPU_ORDER
    environ = order | given | dict(environment) | of_job
    values: dict[str, str] = {}
    if tmpdir:
        environ[TMPDIR_VARIABLE] = tmpdir
    if (path := environment.get(PATH_VARIABLE)) is not None:
        environ[PATH_VARIABLE] = path = f"{path.rstrip('/')}/{name}"
        environ["FLUX_KVS_NAMESPACE"] = f"job-{jobid}"
        values = pmi_values(path, [each.node for each in placements])
    cwd, limits = jobspec.cwd or "/", limits_of(jobspec)
    return Start(
        jobid,
        command,
        environ,
        cwd,
        tasks,
        takes_input(jobspec),
        limits,
        jobspec.attribute(OUTPUT_MODE) == "append",
        values if has_pmi(jobspec) and (values or len(tasks) > 1) else None,
        tmpdir=bool(tmpdir),
        files=files_of(jobspec) if tmpdir else [],
        labeled=labeled_streams(jobspec),
    )


class _File(msgspec.Struct):
    """An entry of `attributes.system.files`: its data, as `encoding` says; without it any JSON."""

    data: Any
    mode: int = 0o600
    encoding: str | None = None


def files_of(jobspec: Jobspec) -> list[TravelingFile]:
    """Return the files that travel with a jobspec (RFC 37). Raises FormatError."""
    files = []
    given = jobspec.attribute(FILES)
    for name, value in given.items() if isinstance(given, dict) else ():
        where = f"{FILES}.{name}"
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or not all(parts) or "\0" in name:
            raise FormatError("the name of a file below the job's directory", name, FILES)
        file = converted(value, _File, where)
        files.append(TravelingFile(name, _data_of(file, where), file.mode))
    return files


def _data_of(file: _File, where: str) -> bytes:
    if file.encoding is None:
        return msgspec.json.encode(file.data)
    if isinstance(file.data, str) and file.encoding == "utf-8":
        return file.data.encode()
    if isinstance(file.data, str) and file.encoding == "base64":
        with suppress(binascii.Error):
            return base64.b64decode(file.data, validate=True)
    raise FormatError("data in the encoding utf-8 or base64", file.encoding, where)


def _bound(
    affinities: Affinities, resources: ResourceSet, placements: list[Placement]
) -> list[Task]:
    """Return the tasks with their cores, and with variables that say where they run."""
    counts = Counter(place.rank for place in placements)
    cores = {rank: list(resources.cores(rank)) for rank in counts}
    gpus = {rank: list(resources.gpus(rank)) for rank in counts}
    hosts = resources.hosts
    tasks = []
    for place in placements:
        rank, ntasks = place.rank, counts[place.rank]
        environ = {
            "FLUX_TASK_RANK": str(place.taskid),
            "FLUX_TASK_LOCAL_ID": str(place.local_id),
            "FLUX_TRIO_RANK": str(rank),
            "FLUX_TRIO_HOST": hosts[rank],
        }
        environ |= gpu_environment(affinities.gpus, gpus[rank], place.local_id, ntasks)
        bound = bound_cores(affinities.cores, cores[rank], place.local_id, ntasks)
        tasks.append(Task(place.taskid, environ, bound))
    return tasks


def for_broker(command: list[str], tmpdir: str) -> list[str]:
    """Return `command`; if it is flux-core's broker, its program in `tmpdir` is quoted.

    The broker gives a program without arguments to a shell as it is (flux batch:
    {{tmpdir}}/script), and a path may have blanks.
    """
    *before, last = command
    is_brokers = before[:2] == ["flux", "broker"] and all(word[:1] == "-" for word in before[2:])
    if not (is_brokers and tmpdir and last.startswith(_TMPDIR)):
        return command
    return [*before, last.replace(_TMPDIR, shlex.quote(tmpdir))]


class _Templates:
    """The parts of a jobspec that may have tags; false if there are no tags."""

    def __init__(self, jobspec: Jobspec, tmpdir: str) -> None:
        self._jobspec = jobspec
        self._tmpdir = tmpdir  # "" if the job has none
        self._files = redirects_of(jobspec)
        command = list(jobspec.tasks[0].command)
        self._command = for_broker(command, tmpdir) if any("{{" in word for word in command) else []
        expand = jobspec.attribute(ENV_EXPAND)
        self._environment = expand if isinstance(expand, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._files or self._command or self._environment)

    def fill_in(
        self,
        jobid: int,
        name: str,
        resources: ResourceSet,
        placements: list[Placement],
        tasks: list[Task],
    ) -> list[Task]:
        """Return the tasks with tags filled in; `name` is the job id in F58."""
        hosts = resources.hosts
        of_job = job_tags(jobid, name, self._jobspec, len(placements), resources.nnodes)
        if self._tmpdir:
            of_job = {**of_job, "tmpdir": self._tmpdir}
        of_node = {
            rank: node_tags(node, rank, hosts[rank], resources.cores(rank), resources.gpus(rank))
            for node, rank in enumerate(resources.ranks)
        }
        filled, nchars = list[Task](), 0
        for task, place in zip(tasks, placements, strict=True):
            tags = {**of_job, **of_node[place.rank], **task_tags(place.taskid, place.local_id)}
            argv = [filled_in(word, tags) for word in self._command]
            files = {stream: filled_in(path, tags) for stream, path in self._files.items()}
            more = {
                name: filled_in(text, tags)
                for name, text in self._environment.items()
                if isinstance(text, str)
            }
            nchars += sum(map(len, [*argv, *files.values(), *more.values()]))
            if nchars > FILLED_CHARS_MAX:
                raise LayoutError(
                    f"expected at most {FILLED_CHARS_MAX} characters in the commands, paths and "
                    f"variables with tags of all tasks, got {nchars} for {len(filled) + 1} of "
                    f"{len(tasks)} tasks"
                )
            filled.append(Task(task.taskid, task.env | more, task.cores, files, argv))
        return filled
