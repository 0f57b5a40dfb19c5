"""What `flatmq size` weighs: every module that a board may load, from .mpy and from ROMFS."""

from click.testing import CliRunner

from flatmq_tools import bytecode, cli


def test_every_module_is_weighed() -> None:
    done = CliRunner().invoke(cli.main, ["size"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    rows = {
        line.split()[0]: line.split()[-5:] for line in done.output.splitlines() if line.split()
    }
    modules = {source.stem for source in bytecode.SOURCES.glob("*.py")} - set(bytecode.DESK_ONLY)
    assert modules <= set(rows)
    for name in modules - {"__init__"}:
        source, functions, mpy, held, in_place = (int(n.replace(",", "")) for n in rows[name])
        assert 0 < functions < mpy < source
        assert held > 0 and in_place > 0
    total = [int(n.replace(",", "")) for n in rows["together"]]
    assert 0 < total[4] < total[3], "nothing is saved in ROMFS"
