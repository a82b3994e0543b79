"""Family `sql`: entering and migrating the records of a shop in SQLite, with triggers and constraints that refuse."""

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, subjects
from data.phrasing import Kind, kind, words

NAME = "sql"
WOODS = words("oak pine elm ash birch cedar maple larch alder beech hazel rowan teak yew fir lime")
SUPPLIERS = words("acme borg corvo dyne evans foster")

STATUS = kind("status", "enter entered as status", ("open", "held", "paid", "sent"))
CURRENCY = kind("currency", "bill billed in currency", ("euro", "dollar", "pound", "franc"))
TABLE = kind("table", "store stored in table", ("archive", "staging", "live", "backup"))
UNIT = kind("unit", "count counted in unit", ("boxes", "crates", "pallets", "pieces"))
COLUMN = kind("column", "price priced in column", ("net", "gross", "list_price", "cost"))
MODE = kind("mode", "post posted in mode", ("batch", "single", "bulk", "queued"))
SUPPLIER = kind("supplier", "drop dropped from supplier", SUPPLIERS)
NEXT = kind("next", "import imported from supplier", SUPPLIERS)

SCHEMAS = {
    "orders": "create table orders(name text primary key, status text);",
    "bills": "create table bills(name text primary key, currency text);",
    "stock": "create table stock(name text primary key, unit text);",
    "records": "create table archive(name text); create table staging(name text); create table live(name text); "
    "create table backup(name text);",
}


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    doubled, column = choose(SUPPLIERS, NAME, seed, "doubled"), choose(COLUMN.words, NAME, seed, "column")
    good = choose(MODE.words, NAME, seed, "mode")
    bad = choose([word for word in MODE.words if word != good], NAME, seed, "bad mode")
    order = sorted(SUPPLIERS, key=lambda name: draw(NAME, seed, "order", name))[:4]
    schemas = SCHEMAS | {
        "prices": _prices([column] if "grounding" in bound else list(COLUMN.words)),
        "posts": _posts(good, bad, guarded="failure_loop" in bound),
        "rows": _rows(doubled if "diagnosis" in bound else None),
        "imports": _imports(order, counted="progress" in bound),
    }
    return Offer(
        title="Bring the shop databases up to date.",
        files={f"{name}.sql": text for name, text in schemas.items()},
        setup="for f in *.sql; do sqlite3 ${f%.sql}.db < $f; done; rm *.sql",
        deliverables=[
            (_entered, _billed, _stored, _counted)[place % 4](name) for place, name in enumerate(subjects(WOODS, size))
        ],
        discoveries=_discoveries(doubled, column, good, bad, order),
        first=Act("first", "ls", goal="list the databases", reads=()),
        look=Act("look", _query("rows", "select count(*) from rows"), goal="look around again", reads=("rows.db",)),
        review=Act("review", _query("rows", "select count(*) from rows"), goal="look over the results", reads=("rows.db",)),
        finish=Act("finish", _query("rows", "pragma user_version=2"), goal="mark the records as done", reads=("rows.db",)),
        finish_probe=Probe("done", lambda end: end.sql("rows.db", "pragma user_version"), "2"),
    )


def _prices(columns: list[str]) -> str:
    names = ", ".join(f"{column} real" for column in columns)
    return f"create table prices (name text, {names}); insert into prices(name) values ('floor'), ('door');"


def _posts(good: str, bad: str, *, guarded: bool) -> str:
    trigger = (
        f"create trigger guard before insert on posts when new.mode <> '{good}' "
        f"begin select raise(abort, 'post in mode {bad} failed; post in mode {good}'); end;"
    )
    return "create table posts(part text, mode text);" + trigger * guarded


def _rows(doubled: str | None) -> str:
    lines = [f"insert into rows values('{name}', '{item}');" for name in SUPPLIERS for item in WOODS[:3]]
    lines += [f"insert into rows values('{doubled}', '{WOODS[0]}');"] if doubled else []
    return "\n".join(
        [
            "create table rows(supplier text, item text);",
            *lines,
            "create view doubled as select 'doubled row found in ' || supplier from rows",
            "group by supplier, item having count(*) > 1;",
        ]
    )


def _imports(order: list[str], *, counted: bool) -> str:
    """Bound: each supplier once and in order; free: anything goes."""
    lines = [f"insert into queue values({place}, '{name}');" for place, name in enumerate(order if counted else [])]
    return "\n".join(
        [
            f"create table imported(supplier text{' primary key' * counted}); create table queue(place integer, supplier text);",
            *lines,
            "create view next as select 'done; import to do next: ' || supplier from queue where supplier not in "
            "(select supplier from imported) order by place limit 1;",
        ]
    )


def _query(database: str, statement: str) -> str:
    return f'sqlite3 {database}.db "{statement}"'


def _write(subject: str, kind: Kind, database: str, statement: str, check: str, expected: str = "<V>") -> Deliverable:
    """A statement on one database, and the query and answer that check it; `<V>` stands for the value in all three."""
    path = f"{database}.db"
    return Deliverable(
        subject,
        kind,
        _query(database, statement),
        lambda code: Probe(subject, lambda end: end.sql(path, check.replace("<V>", code)), expected.replace("<V>", code)),
        (path,),
    )


def _entered(name: str) -> Deliverable:
    return _write(
        f"{name} order",
        STATUS,
        "orders",
        f"replace into orders values('{name}', '<V>')",
        f"select status from orders where name='{name}'",
    )


def _billed(name: str) -> Deliverable:
    return _write(
        f"{name} order",
        CURRENCY,
        "bills",
        f"replace into bills values('{name}', '<V>')",
        f"select currency from bills where name='{name}'",
    )


def _stored(name: str) -> Deliverable:
    return _write(
        f"{name} record", TABLE, "records", f"insert into <V> values('{name}')", f"select name from <V> where name='{name}'", name
    )


def _counted(name: str) -> Deliverable:
    return _write(
        f"{name} stock",
        UNIT,
        "stock",
        f"replace into stock values('{name}', '<V>')",
        f"select unit from stock where name='{name}'",
    )


def _discoveries(doubled: str, column: str, good: str, bad: str, order: list[str]) -> list[Discovery]:
    prices = tuple(
        _write(
            f"{item} prices",
            COLUMN,
            "prices",
            f"update prices set <V>=5 where name='{item}'",
            f"select <V> from prices where name='{item}'",
            "5.0",
        )
        for item in ("floor", "door")
    )
    posts = tuple(
        _write(
            f"{part} post",
            MODE,
            "posts",
            f"insert into posts values('{part}', '<V>')",
            f"select part from posts where part='{part}'",
            part,
        )
        for part in ("morning", "evening")
    )
    drops = (
        _write(
            "doubled row",
            SUPPLIER,
            "rows",
            "delete from rows where rowid in "
            "(select max(rowid) from rows where supplier='<V>' group by item having count(*) > 1)",
            "select count(*) from doubled",
            "0",
        ),
    )
    imports = tuple(
        _write(
            "import next in line",
            NEXT,
            "imports",
            "insert into imported values('<V>'); select * from next",
            "select supplier from imported where supplier='<V>'",
        )
        for _ in range(3)
    )
    return [
        Discovery(
            "grounding",
            "prices",
            COLUMN,
            Act("read schema", "sqlite3 prices.db .schema", goal="read the schema of the prices", reads=("prices.db",)),
            ((column, f"CREATE TABLE prices (name text, {column} real);"),),
            prices,
        ),
        Discovery(
            "failure_loop",
            "post",
            MODE,
            Act(
                "try post",
                _query("posts", f"insert into posts values('trial', '{bad}')"),
                goal=f"post a trial in mode {bad}",
                fails=True,
                reads=("posts.db",),
            ),
            ((good, f"post in mode {bad} failed; post in mode {good}"),),
            posts,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "doubled row",
            SUPPLIER,
            Act(
                "find doubled",
                _query("rows", "select * from doubled"),
                goal="find out where a row is doubled",
                reads=("rows.db",),
            ),
            ((doubled, f"doubled row found in {doubled}"),),
            drops,
        ),
        Discovery(
            "progress",
            "import",
            NEXT,
            None,
            tuple(
                (name, f"The import to do first: {name}." if place == 0 else f"import to do next: {name}")
                for place, name in enumerate(order[:3])
            ),
            imports,
            rivals=tuple(order),
        ),
    ]
