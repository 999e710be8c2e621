"""A study in a database, for `--storage URL`: the URL checked, the driver, errors in one line, opened or rebuilt.

`study.json` in a run's folder says which database its study is in and under which name; without that
file it is the journal. A name ends in random digits, so that runs of the same name can share a
database. Passwords are in the URL that is handed to Optuna and nowhere else.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from optuna.distributions import distribution_to_json
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage

from ...archs.errors import InputError, OperationError
from ...archs.json_files import read_json
from ...results.runs.record import Record
from ...results.runs.store import write_json
from ..redact import redact, shown_url
from ..samplers.sampler_context import SamplerContext, candidate_baselines
from .mirror import StudyMirror, journal
from .study import BROKEN, JOURNAL_STUDY, CostOf, StudyAdapter, check_numbers, fill_study, open_journal, quiet

if TYPE_CHECKING:
    from sqlalchemy import URL


log = logging.getLogger("alternas")
# Of each kind of database: the driver where the URL names none, and how it is installed.
DRIVERS = {
    "postgresql": ("psycopg", 'pip install "psycopg[binary]"'),
    "mysql": ("pymysql", "pip install pymysql"),
    "sqlite": ("pysqlite", ""),
}
TIMED = ("psycopg", "psycopg2", "pymysql", "mysqldb")  # drivers that know connect_timeout
CONNECT_SECONDS = 10
FORMS = "postgresql://USER:PASSWORD@HOST/DATABASE, mysql://USER:PASSWORD@HOST/DATABASE or sqlite:///FILE"


def parse_url(text: str) -> URL:
    """The URL of a database, with its driver and, for a file, its whole path.

    Raises:
        InputError: if it is none. The message does not repeat it, for it may hold a password.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InputError(f"storage: must be {FORMS}") from None
    kind = url.get_backend_name()
    if kind not in DRIVERS:
        raise InputError(f"storage: must be {FORMS}, got one that begins with {kind!r}")
    if kind != "sqlite" and text.split("?")[0].count("@") > 1:
        raise InputError("storage: has more than one '@'; within a password write %40, and %2F and %3A for '/' and ':'")
    database = url.database
    if not database or database == ":memory:":
        raise InputError(f"storage: names no database; must be {FORMS}")
    if "+" not in url.drivername:
        url = url.set(drivername=f"{kind}+{DRIVERS[kind][0]}")
    return url.set(database=str(Path(database).resolve())) if kind == "sqlite" else url


def shown(url: URL) -> str:
    """A URL as it may be shown and kept: without passwords."""
    return shown_url(url.render_as_string(hide_password=False))


class Database(RDBStorage):
    """Optuna's storage, which writes the genes of a new trial in one statement.

    It would ask the database for each gene whether trial and distribution fit; the mirror has seen to that.
    """

    def _set_trial_param_without_commit(
        self,
        session: Any,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: Any,
        previous_distribution: Any = None,
    ) -> None:
        from optuna.storages._rdb.models import TrialParamModel

        written = distribution_to_json(distribution)
        gene = TrialParamModel(
            trial_id=trial_id, param_name=param_name, param_value=param_value_internal, distribution_json=written
        )
        session.add(gene)


def connect(url: URL) -> RDBStorage:
    """Optuna's storage in the database at `url`; its tables are made if they are not there.

    Raises:
        InputError: if it cannot be reached or used, or its driver is not installed.
    """
    from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

    driver = url.get_driver_name()
    options: dict[str, Any] = {"pool_pre_ping": True}  # servers close connections that were idle for long
    if driver in TIMED and "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": CONNECT_SECONDS}
    try:
        return Database(url.render_as_string(hide_password=False), engine_kwargs=options)
    except (ImportError, NoSuchModuleError):
        known, install = DRIVERS[url.get_backend_name()]
        hint = install if driver == known else f"install it, or leave the driver out of the URL and {install}"
        raise InputError(f"storage {shown(url)}: needs the package {driver}, which is not installed: {hint}") from None
    except (SQLAlchemyError, StorageInternalError, RuntimeError, TypeError) as error:
        raise InputError(f"storage {shown(url)}: cannot be used ({_reason(error, url)})") from None


def _reason(error: BaseException, url: URL) -> str:
    """What the database driver said, in one line without passwords."""
    cause = getattr(error, "orig", None) or error.__cause__ or error
    return redact(cause, url.render_as_string(hide_password=False))


@contextmanager
def database_errors(storage: str) -> Iterator[None]:
    """Turn errors of the database while a search runs into an OperationError: the same command resumes."""
    if not storage:
        yield
        return
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        url = parse_url(storage)
        cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        raise OperationError(
            f"storage {shown(url)} has failed ({_reason(cause, url)}); the same command resumes"
        ) from None


def open_study(
    folder: Path, records: Sequence[Record], strategy: str, context: SamplerContext, cost_of: CostOf, storage: str = ""
) -> StudyAdapter:
    """The study of the run in `folder`: in its journal, or in the database `storage`.

    The records are the truth, so a run may move from one to the other: the study is rebuilt there,
    and nets that waited at a rung are forgotten, as when a journal is lost.

    Raises:
        InputError: if the database cannot be used, or the records' numbers are impossible.
    """
    quiet()
    records = [record for record in records if record.kind != "reference"]  # those are in no space
    check_numbers(records)
    note = study_note(folder)
    if not storage:
        drop_note(folder)
        return open_journal(folder, records, strategy, context, cost_of)
    url = parse_url(storage)
    database = connect(url)
    if note.get("storage") == shown(url):
        try:
            database.get_study_id_from_name(note["study"])
            adapter = StudyAdapter(StudyMirror(database, database, note["study"]), strategy, context, note["study"])
            adapter.check_has(records, len(candidate_baselines(context)))
            return adapter
        except (KeyError, ValueError) as error:
            log.warning(
                "study %s in the database is not this run's (%s): rebuilt from the records", note["study"], error
            )
    name = f"{folder.name}-{uuid.uuid4().hex[:8]}"
    adapter = StudyAdapter(StudyMirror(database, database, name), strategy, context, name)
    fill_study(adapter, records, context, cost_of)
    write_json(folder / "study.json", {"storage": shown(url), "study": name})  # last: one half filled is never found
    return adapter


def study_of(folder: Path, storage: str = "") -> tuple[BaseStorage, int]:
    """The storage that holds the study of a run, and its number there.

    A database is opened only at the URL that the user gives.

    Raises:
        InputError: if it is not there, or in a database that is not the one at `storage`.
    """
    note = study_note(folder)
    if note:
        database, name = _database_of(folder, note["storage"], storage), note["study"]
    else:
        database, name = _journal_of(folder, storage), JOURNAL_STUDY
    try:
        return database, database.get_study_id_from_name(name)
    except KeyError:
        raise InputError(f"run {folder.name!r}: its study {name!r} is not in the storage any more") from None


def _database_of(folder: Path, recorded: str, storage: str) -> RDBStorage:
    recorded, run = shown(parse_url(recorded)), f"run {folder.name!r}"  # without its password
    if not storage:
        rule = "a URL is opened where you give it: repeat it, with its password if it has one: --storage URL"
        raise InputError(f"storage: the study of {run} is in {recorded}; {rule}")
    url = parse_url(storage)
    if shown(url) != recorded:
        raise InputError(f"storage: the study of {run} is in {recorded}, not in {shown(url)}")
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise InputError(f"{run} has no study: {url.database} is not there")
    return connect(url)


def _journal_of(folder: Path, storage: str) -> BaseStorage:
    path, run = folder / "study.journal", f"run {folder.name!r}"
    if storage:
        raise InputError(f"storage: the study of {run} is in its journal, {path}")
    if not path.exists():
        raise InputError(f"{run} has no study: {path} is not there; its search makes it")
    try:
        return journal(path)
    except BROKEN as error:
        hint = "the command of its search rebuilds it from the records"
        raise InputError(f"{path}: is broken ({error!r}); {hint}") from None


class StudyNote(TypedDict):
    """What study.json holds."""

    storage: str
    study: str


def study_note(folder: Path) -> dict[str, str]:
    """Of a run whose study is in a database: "storage", its URL without passwords, and "study", its name; else empty.

    Raises:
        InputError: if the file cannot be read.
    """
    path = folder / "study.json"
    return dict(read_json(path, StudyNote)) if path.exists() else {}


def drop_note(folder: Path) -> None:
    """Delete the note of a study in a database; the study stays there."""
    (folder / "study.json").unlink(missing_ok=True)
