"""Saves a job's results: model.tar.gz, output.tar.gz and checkpoints, and tells the user about them."""

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from berth.common.errors import UserError
from berth.contract.host_names import by_number
from berth.contract.words import few
from berth.local import archive, opt_ml, results
from berth.local.session import RunSession


def pack_folder(session: RunSession, roots: Mapping[str, Path], folder: str, target: Path) -> Path | None:
    """Packs one folder of all hosts into an archive; None without files. If several hosts have a file of the same name,
    the first host's is packed. An earlier archive is renamed.

    roots: host → its /opt/ml on this machine. If the archive can't be written, the error says where the folders are.
    """
    results_by_host = {
        host: results.read_folder(root, folder, f"{opt_ml.ROOT}/{folder}") for host, root in roots.items()
    }
    for sentence in _left_out(results_by_host, folder, target.name):
        session.say(sentence)
    files: dict[str, Path] = {}
    for each in results_by_host.values():
        files = {**each.files, **files}
    rename_earlier(session, target)
    try:
        return archive.pack(files, target)
    except UserError as error:
        folders = [root / folder for root in roots.values() if not results.folder_fault(root, folder)]
        raise UserError(f"{error} What the job wrote is kept in {session.rescue(folders)}.") from None


def _left_out(results_by_host: Mapping[str, results.ResultFolder], folder: str, archive_name: str) -> list[str]:
    """Which files of which hosts are not in the archive, and why; hosts with the same reason share a sentence."""
    refused: dict[tuple[str, ...], list[str]] = {}
    for host, result in results_by_host.items():
        refused.setdefault(tuple(result.left_out), []).append(host)
    counts = Counter(name for result in results_by_host.values() for name in result.files)
    duplicates = sorted(name for name, hosts in counts.items() if hosts > 1)
    sentences = [
        f"{archive_name}: several hosts wrote files of the same names ({few(duplicates)}); those of the first are kept."
    ] * bool(duplicates)
    for hosts in refused.values():
        where = f"{opt_ml.ROOT}/{folder} of {few(sorted(hosts, key=by_number))}"
        sentences.append(results_by_host[hosts[0]].sentence(where))
    return list(filter(None, sentences))


def rename_earlier(session: RunSession, earlier: Path) -> None:
    """Renames an earlier job's archive, so that it isn't lost, and nobody mistakes it for this job's."""
    if earlier.exists():
        renamed = earlier.with_name(f"earlier-{earlier.name}")
        earlier.replace(renamed)
        session.say(f"{earlier.name} was from an earlier job: it is now {renamed}.")


def keep_checkpoints(session: RunSession, checkpoints: Path, output: Path) -> Path | None:
    """Keeps the checkpoints of a job that failed or was stopped, so that another job can resume from them."""
    ours = checkpoints.is_relative_to(session.scratch)
    for path, kind in list(results.unsafe_entries(checkpoints, f"{opt_ml.ROOT}/checkpoints")):
        shown = repr(path.relative_to(checkpoints).as_posix())
        session.say(f"The checkpoints contain {shown}, {kind}: " + ("it is removed." if ours else "do not follow it."))
        if ours:
            path.unlink()
    if not _holds_any(checkpoints):
        return None
    if ours:
        checkpoints = Path(shutil.move(checkpoints, output / f"checkpoints-{session.run_id}"))
    session.say(f"Checkpoints are kept in {checkpoints}; pass it as --checkpoints to resume from them.")
    return checkpoints


def report_deleted_checkpoints(session: RunSession, checkpoints: Path) -> None:
    """Tells the user that a successful job's checkpoints are deleted, unless they are in the user's own folder."""
    if checkpoints.is_relative_to(session.scratch) and _holds_any(checkpoints):
        session.say("Checkpoints of a successful job are not kept: pass a folder for them with --checkpoints.")


def _holds_any(checkpoints: Path) -> bool:
    """Whether there is more than incomplete checkpoints of killed ranks."""
    return any(not path.name.startswith(".partial-") for path in checkpoints.iterdir())
