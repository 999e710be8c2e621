"""A space in the user's own file: every strategy takes it, a changed one is another, and what is wrong is one line."""

import hashlib
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import alternas
from alternas.archs import InputError
from alternas.archs import user_code as blame
from alternas.results.runs.record import Record
from alternas.results.runs.store import read_settings
from alternas.search.strategies.registry import check_strategy
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import FileSpace, FixedChooser, find, get, members
from alternas.spaces.base import RandomChooser
from command_line import run
from fakes import FakeExecutor, SilentView, run_loop

EXAMPLE = Path(alternas.__file__).parent / "examples" / "my_space.py"
Made = Callable[..., FileSpace]
MOST = "from alternas.archs import Encoder, Genotype, Head, Stage, Stem\n"
HEAD = f"""{MOST}class Mine:
    def __init__(self, image_size):
        self.calls = 0
    def sample(self, chooser):
"""
FINE = f"""{HEAD}        width = chooser.choose('width', (4, 8))
        return Genotype(Stem('cifar', width), (Stage(width=8),))
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Writes a file of the given text in the current folder, and makes its space."""
    monkeypatch.chdir(tmp_path)

    def make(text: str | bytes, side: int = 8) -> FileSpace:
        Path("mine.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        return FileSpace("./mine.py", (side, side))

    return make


def drawn(body: str) -> str:
    """A file whose `sample` has these lines."""
    return HEAD + "".join(f"        {line}\n" for line in body.splitlines())


NET = "return Genotype(Stem('cifar', 8), (Stage(depth=2, width=8, msa=m),))"
BASELINES = FINE + "    def baselines(self):\n        return "
WRONG = {
    "raises on import": ("import math\nx = math.sqrt('a')\n", "mine.py:2: TypeError: must be real number"),
    "does not parse": ("x = 1\ndef f(:\n", "mine.py:2: SyntaxError: invalid syntax"),
    "is no text": (b"x = '\xff'\n", "SyntaxError"),
    "ends the program": ("import sys\nsys.exit(3)\n", "exits the program with 3"),
    "holds no space": ("from alternas.spaces.families import ResNetSpace\n"
                       "class _Helper:\n    def sample(self, c): ...\n",
                       "one class with a method sample(chooser), a space, got none"),
    "holds two": (FINE + "class Other(Mine): ...\n", "got Mine, Other"),
    "takes no image size": ("class Mine:\n    def sample(self, chooser): ...\n",
                            "Mine((8, 8)): TypeError: Mine() takes no arguments"),
    "fails in the constructor": (MOST + "class Mine:\n    def __init__(self, size):\n        self.side = size / 2\n"
                                 "    def sample(self, chooser): ...\n", "mine.py:4: TypeError"),
    "raises in sample": (drawn("m = chooser.choose('m', (0, 1))\nreturn {}[m]"), "mine.py:7: KeyError: 1"),
    "raises for few nets": (drawn("m = chooser.choose('m', tuple(range(40)))\nif m == 17: raise ValueError('17!')\n"
                                  "return Genotype(Stem('cifar', m + 1), (Stage(),))"), "mine.py:7: ValueError: 17!"),
    "breaks the genotype's rule": (drawn(f"m = chooser.choose('m', (0, 1, 2))\n{NET}"),
                                   "mine.py:7: stage 1: the build-up rule needs depth >= 2 msa, got depth 2, msa 2"),
    "does not fit the image": (drawn("m = chooser.choose('m', (2, 3))\n"
                                     "return Genotype(Stem('patchify', 8, m), (Stage(),))"),
                               "the net of m 3 does not fit images of 8x8 px: stem: "),
    "returns no net": (drawn("chooser.choose('m', (0, 1))"), "sample() must return a Genotype, got None"),
    "chooses nothing": (drawn("return Genotype(Stem(), (Stage(),))"), "chooses no gene"),
    "chooses at times": (drawn("m = chooser.choose('m', (0, 1))\nif m: chooser.choose('heads', (1, 2))\n" + NET),
                         "gene heads: chosen for some nets and not for others"),
    "changes options": (drawn("m = chooser.choose('m', (0, 1))\nw = chooser.choose('width', (8, 16 + m))\n" + NET),
                        "gene width: its options change from net to net, [8, 1"),
    "chooses twice": (drawn("m = chooser.choose('m', (0, 1))\nchooser.choose('m', (0, 1, 2))\n" + NET),
                      "mine.py:7: gene m: chosen twice with other options, [0, 1] and [0, 1, 2]"),
    "goes by chance": (drawn("import random\nm = chooser.choose('m', (0, 1))\n"
                             "return Genotype(Stem('cifar', random.choice((8, 16))), (Stage(),))"),
                       "sample() goes by more than its genes: m "),
    "goes by its past": (drawn("self.calls += 1\nm = chooser.choose('m', (0, 1))\n"
                               "return Genotype(Stem('cifar', self.calls), (Stage(),))"), "more than its genes"),
    "no options": (drawn("chooser.choose('m', ())"), "mine.py:6: gene m: options must be a tuple of one or more"),
    "mixed options": (drawn("chooser.choose('m', (1, 'a'))"), "texts alone or numbers alone: [1] must be"),
    "the same option twice": (drawn("chooser.choose('m', (1, 1))"), "gene m: an option is listed twice"),
    "no baselines": (BASELINES + "None\n", "baselines() must return a tuple of Genotypes, got None"),
    "baselines with attention": (BASELINES + "(Genotype(Stem(), (Stage(msa=1),)),)\n", "got one of family 'alternet'"),
    "baselines that fall": (BASELINES + "[Genotype(Stem('cifar', w), (Stage(width=8),)) for w in (9, 8)]\n",
                            "baseline 2: must cost more than the one before"),
    "baselines that do not fit": (BASELINES + "(Genotype(Stem('patchify', 8, 3), (Stage(),)),)\n",
                                  "baseline 1 does not fit images of 8x8 px"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(made: Made, case: str) -> None:
    text, said = WRONG[case]
    with pytest.raises(InputError) as error:
        made(text)
    message = str(error.value)
    assert message.startswith("space ./mine.py: ")
    assert said in message
    assert "\n" not in message
    assert not list(Path().rglob("*.pyc"))


def test_files_that_are_not_there(made: Made) -> None:
    for name in ("none.py", "./none", "folder.py"):
        Path("folder.py").mkdir(exist_ok=True)
        with pytest.raises(InputError, match=rf"space {name}: (cannot be read|must be a file)"):
            find(name, 8)
    with pytest.raises(InputError, match=r"did you mean 'alternet'\?\); known: all.*, ./my_space.py"):
        find("alternets", 8)
    assert find("resnet", 8).name == "resnet"


def test_a_fine_one(made: Made) -> None:
    space = made(FINE)
    assert (space.name, space.options) == ("mine.py", {"width": (4, 8)})
    assert space.baselines() == get("resnet", 8).baselines()
    assert made(FINE).identity == space.identity != made(FINE + "# more\n").identity
    assert made(FINE.replace("(4, 8)", "[4, 8]")).options == {"width": (4, 8)}, "a list will do"
    assert space.source == FINE
    made("number: int = 1\nassert __annotations__['number'] is int\n" + FINE)  # compiled as the user would


def of_many(line: str) -> str:
    """A file of a space of 64,000 nets, with a line about their genes a, b and c."""
    genes = "a, b, c = (chooser.choose(name, tuple(range(1, 41))) for name in 'abc')"
    return drawn(f"{genes}\n{line}\nreturn Genotype(Stem('cifar', a), (Stage(width=b, heads=c),))")


def test_a_late_mistake_is_one_line_too(made: Made) -> None:
    """A net that the check has not drawn."""
    for late, said in (
        ("raise OSError('late')", r"space ./mine.py: mine.py:7: OSError: late"),
        ("chooser.choose('d', (1, 2))", "gene d: chosen for some nets and not for others"),
    ):
        with pytest.raises(InputError, match=said):
            made(of_many(f"if a == b == c == 40: {late}")).sample(FixedChooser({"a": 40, "b": 40, "c": 40}))


def test_a_choosers_own_error_is_not_blamed_on_the_file(made: Made) -> None:
    with pytest.raises(InputError, match=r"^gene width: must be one of"):
        made(FINE).sample(FixedChooser({"width": 5}))


def test_a_space_may_build_on_ours(made: Made) -> None:
    space = made(
        "from __future__ import annotations\nfrom dataclasses import dataclass, replace\n"
        "from alternas.spaces.families import AlterNetSpace\nfrom alternas.spaces.presets import preset_for\n"
        "@dataclass\nclass _Range:\n    low: int\n"
        "class Narrow(AlterNetSpace):\n    def __init__(self, size):\n"
        "        super().__init__(size, replace(preset_for(size), widths=(_Range(6).low,)))\n"
    )
    assert space.options["width"] == (6,)


@pytest.mark.parametrize("side", [7, 8, 32, 224])
def test_the_example_by_hand(side: int) -> None:
    """Depth 2: no MSA block, or one with three heads to choose from; 3: the same; 4: none, one or two."""
    space = FileSpace(str(EXAMPLE), (side, side))
    stems = 2 if side % 2 == 0 else 1
    keys = {net.key for _, net in members(space)}
    assert len(keys) == stems * 3 * ((1 + 3) + (1 + 3) + (1 + 3 + 3))
    assert {net.key for net in space.baselines()} <= keys


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["random", "tpe", "nsga2", "evolution", "buildup", "enumerate"])
def test_every_strategy_takes_it(
    strategy: str, open_controller: Callable[..., SearchTrials], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searched, stopped and taken up again; nets of the space alone."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE, "mine.py")
    nets = {net.key for _, net in members(FileSpace("mine.py", (8, 8)))}
    for trials in (6, 12):
        controller = open_controller(FileSpace("mine.py", (8, 8)), trials, strategy)
        run_loop(controller, FakeExecutor(), SilentView())
    searched: list[Record] = [r for r in controller.store.records if r.kind == "search" and r.status == "ok"]
    assert len({r.key for r in searched}) == len(searched)
    assert len(searched) == (6 if strategy == "buildup" else 12), "three baselines, two steps each, all of them kept"
    assert {r.key for r in searched} <= nets
    assert {r.key for r in controller.store.records if r.kind == "baseline"} <= nets
    if strategy == "buildup":
        assert {r.family for r in searched} == {"alternet"}


SOON = "__import__('signal').setitimer(0, 0.01)"  # the limit's own alarm, from where it takes for ever
ENDLESS = {
    "on import": f"{SOON}\nwhile True:\n    try:\n        x = 1\n    except Exception:\n        pass\n",
    "while it draws": drawn(f"import time\n{SOON}\ntime.sleep(1000)"),
    "in its baselines": BASELINES + f"[{SOON}, [0 for _ in iter(int, 1)]]\n",
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_space_that_takes_for_ever_is_one_line(case: str, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "SAID_AFTER", 1000.0)
    alarm = signal.getsignal(signal.SIGALRM)
    with pytest.raises(InputError, match=r"^space \./mine\.py: mine\.py:\d+: takes longer than 120 s$"):
        made(ENDLESS[case])
    assert signal.getsignal(signal.SIGALRM) is alarm


def test_a_space_that_takes_long_says_so_once(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blame, "SAID_AFTER", 0.2)
    monkeypatch.setattr(blame, "SECONDS", 0.6)
    with pytest.raises(InputError, match=r"mine\.py:1: takes longer than 0\.6 s"):
        made("while True: pass\n")
    said = [record.getMessage() for record in caplog.records]
    assert said == ["space ./mine.py: mine.py:1: still runs; it is ended after 0.6 s"]


def test_a_net_that_takes_for_ever_is_one_line(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn later, as a search does; an alarm of somebody else's is left as it was."""
    space = made(FINE.replace("        width =", "        while self.calls > 10_000: pass\n        width =", 1))
    monkeypatch.setattr(blame, "SECONDS", 0.5)
    space._own.calls = 20_000
    before = signal.setitimer(signal.ITIMER_REAL, 100.0)
    with pytest.raises(InputError, match=r"mine\.py:6: takes longer than 0\.5 s"):
        space.sample(RandomChooser(0))
    assert 90 < signal.setitimer(signal.ITIMER_REAL, *before)[0] < 100
    space._own.calls = 0
    assert space.sample(RandomChooser(0)).family == "resnet"


def test_a_strategy_that_never_loads_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(blame, "SECONDS", 0.5)
    Path("endless.py").write_text("while True: pass\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot be imported: endless\.py:1: takes longer than 0\.5 s"):
        check_strategy("endless:Sampler")


REFERENCE_KINDS = f"""{MOST}from my_widths import WIDTHS
import my_parts.stages as stages
from my_parts import stems
class Mine:
    def __init__(self, image_size): ...
    def sample(self, chooser):
        import my_late
        width = my_late.chosen(chooser, WIDTHS)
        return Genotype(stems.stem(width), (stages.stage(),))
"""
NEIGHBOURS = {
    "my_widths.py": "from __future__ import annotations\nfrom dataclasses import dataclass\n"
                    "@dataclass\nclass Width:\n    value: int\nWIDTHS = (Width(4).value, 8)\n",
    "my_late.py": "def chosen(chooser, options): return chooser.choose('width', options)\n",
    "my_parts/__init__.py": "from . import stems\n",
    "my_parts/stems.py": "from alternas.archs import Stem\nfrom .deep.kinds import KIND\n"
                         "def stem(width): return Stem(KIND, width)\n",
    "my_parts/stages.py": "from alternas.archs import Stage\ndef stage(): return Stage(width=8)\n",
    "my_parts/deep/__init__.py": "",
    "my_parts/deep/kinds.py": "from ..stages import stage\nKIND = 'cifar'\n",
}  # fmt: skip


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("on_path", [False, True])
def test_a_space_imports_its_neighbours(made: Made, on_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules, packages, relative ones, from within a function; also where the folder is on the import path."""
    if on_path:
        monkeypatch.syspath_prepend(str(Path.cwd()))
    write(NEIGHBOURS | {"my_unused.py": "1 / 0\n"})
    path, finders = list(sys.path), list(sys.meta_path)
    space = made(REFERENCE_KINDS)
    assert space.options == {"width": (4, 8)}
    assert space.sample(FixedChooser({"width": 8})).stem.width == 8
    assert space.neighbours == dict(sorted(NEIGHBOURS.items()))
    assert (sys.path, sys.meta_path) == (path, finders)
    assert not [name for name in sys.modules if name.startswith("my_")]
    assert not list(Path().rglob("*.pyc"))


def test_neighbours_are_run_as_they_are_and_are_part_of_the_space(made: Made) -> None:
    write(NEIGHBOURS)
    before = made(REFERENCE_KINDS)
    assert made(REFERENCE_KINDS).identity == before.identity
    for name, text in NEIGHBOURS.items():
        write({name: text + "# more\n"})
        assert made(REFERENCE_KINDS).identity != before.identity, name
        write({name: text})
    write({"my_widths.py": NEIGHBOURS["my_widths.py"].replace("8)", "9)"), "my_unused.py": "x = 1\n"})
    assert made(REFERENCE_KINDS).options == {"width": (4, 9)}, "of the same length, in the same second"
    assert before.sample(FixedChooser({"width": 8})).stem.width == 8, "a space that was made before keeps its own"
    alone = made(FINE)
    assert alone.neighbours == {}
    assert alone.identity == f"mine.py of source {hashlib.sha256(FINE.encode()).hexdigest()[:16]}"  # of older runs


@pytest.mark.parametrize("name", ["random", "numpy", "yaml", "sys"])
def test_a_neighbour_does_not_shadow_what_is_installed(made: Made, name: str) -> None:
    write({f"{name}.py": "x = 1\n", "my_part.py": f"def f():\n    import {name}\n"})
    assert made(FINE).neighbours == {}, "it is not imported"
    said = rf"my_part.py:2: {name} is an installed module, and {name}.py beside it has its name; rename that file$"
    with pytest.raises(InputError, match=said):
        made("import my_part\n" + FINE)
    write({"alternas/__init__.py": "1 / 0\n"})
    assert made(FINE).neighbours == {}, "a checkout of alternas beside the file"


WRONG_BESIDE = {
    "raises on import": ("import my_part\n", "x = 1\n1 / 0\n", "my_part.py:2: ZeroDivisionError"),
    "does not parse": ("import my_part\n", "\ndef f(:\n", "my_part.py:2: SyntaxError: invalid syntax"),
    "imports what is not there": ("import my_part\n", "import my_other\n", "my_part.py:1: ModuleNotFoundError"),
    "has not the name": ("from my_part import x\n", "", "mine.py:1: ImportError: cannot import name 'x'"),
    "is in no package": ("import my_part\n", "from . import mine\n", "my_part.py:1: ImportError"),
    "never ends": ("import my_part\n", "while True: pass\n", "my_part.py:1: takes longer than 1 s"),
    "raises when called": ("import my_part\nmy_part.f()\n", "def f():\n    return {}[1]\n", "my_part.py:2: KeyError"),
}


@pytest.mark.parametrize("case", WRONG_BESIDE)
def test_what_is_wrong_in_a_neighbour_is_one_line(made: Made, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "SECONDS", 1.0 if case == "never ends" else 60.0)
    head, neighbour, said = WRONG_BESIDE[case]
    Path("my_part.py").write_text(neighbour, encoding="utf-8")
    with pytest.raises(InputError) as error:
        made(head + FINE)
    assert str(error.value).startswith("space ./mine.py: " + said)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_run_is_of_its_neighbours_too(tmp_path: Path) -> None:
    """They stand in run.json; the same search goes on, with a changed one it is refused. Workers need none of them."""
    words = "search ./mine.py --data digits --trials 1 --epochs 0.1 --workers 1 --name mine --json"
    small = BASELINES + "[Genotype(Stem('cifar', 4), (Stage(depth=1, width=4),))]\n"
    (tmp_path / "mine.py").write_text("from my_part import f\n" + small, encoding="utf-8")
    (tmp_path / "my_part.py").write_text("def f(): ...\n", encoding="utf-8")
    code, front, err = run(tmp_path, *words.split())
    assert code == 0, err
    assert read_settings(tmp_path / "runs/mine")["space_neighbours"] == {"my_part.py": "def f(): ...\n"}
    assert run(tmp_path, *words.split())[1] == front
    (tmp_path / "my_part.py").write_text("def f(): 1\n", encoding="utf-8")
    code, _, err = run(tmp_path, *words.split())
    assert (code, err.count("\n"), "space is 'mine.py of source " in err) == (2, 1, True)
