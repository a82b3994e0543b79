"""Family `sql`: entering and migrating the records of a shop in SQLite, with triggers and constraints that refuse."""

from data.envs.base import Act, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer
from data.phrasing import kind

NAME = "sql"
WOODS = ("oak", "pine", "elm", "ash", "birch", "cedar", "maple", "larch", "alder", "beech", "hazel", "rowan", "teak", "yew", "fir", "lime")
SUPPLIERS = ("acme", "borg", "corvo", "dyne", "evans", "foster")

STATUS = kind("status", "enter entered as status", ("open", "held", "paid", "sent"))
CURRENCY = kind("currency", "bill billed in currency", ("euro", "dollar", "pound", "franc"))
TABLE = kind("table", "store stored in table", ("archive", "staging", "live", "backup"))
UNIT = kind("unit", "count counted in unit", ("boxes", "crates", "pallets", "pieces"))
COLUMN = kind("column", "price priced in column", ("net", "gross", "list_price", "cost"))
MODE = kind("mode", "post posted in mode", ("batch", "single", "bulk", "queued"))
SUPPLIER = kind("supplier", "drop dropped from supplier", SUPPLIERS)
NEXT = kind("next", "import imported from supplier", SUPPLIERS)

SCHEMA = """
pragma journal_mode=memory;
create table orders(name text primary key, status text); create table bills(name text primary key, currency text);
create table stock(name text primary key, unit text); create table prices (name text, {column} real);
create table archive(name text); create table staging(name text); create table live(name text); create table backup(name text);
create table rows(supplier text, item text); create table imported(supplier text primary key); create table posts(part text, mode text);
create table queue(place integer, supplier text);
create trigger guard before insert on posts when new.mode <> '{good}'
begin select raise(abort, 'post in mode {bad} failed; post in mode {good}'); end;
insert into prices(name) values ('floor'), ('door');
"""
IMPORTED = ("select 'done; import to do next: ' || supplier from queue where supplier not in (select supplier from imported) "
            "order by place limit 1")


def offer(seed: int, num_acts: int) -> Offer:
    """Everything one seed of this family may use."""
    doubled, column = choose(SUPPLIERS, NAME, seed, "doubled"), choose(COLUMN.words, NAME, seed, "column")
    good = choose(MODE.words, NAME, seed, "mode")
    bad = choose([word for word in MODE.words if word != good], NAME, seed, "bad mode")
    order = sorted(SUPPLIERS, key=lambda name: draw(NAME, seed, "order", name))[:4]
    lines = [SCHEMA.format(column=column, good=good, bad=bad)]
    lines += [f"insert into rows values('{name}', '{item}');" for name in SUPPLIERS for item in WOODS[:3]]
    lines += [f"insert into rows values('{doubled}', '{WOODS[0]}');"]
    lines += [f"insert into queue values({place}, '{name}');" for place, name in enumerate(order)]
    lines += [f"create view next_import as {IMPORTED};",
              "create view doubled as select 'doubled row found in ' || supplier from rows group by supplier, item having count(*) > 1;"]
    return Offer(
        title="Bring the shop records in shop.db up to date.", files={"schema.sql": "\n".join(lines)},
        setup="sqlite3 shop.db < schema.sql > /dev/null && rm schema.sql",
        deliverables=_deliverables(), discoveries=_discoveries(doubled, column, good, bad, order),
        first=Act("first", "sqlite3 shop.db 'select count(*) from rows'", goal="count the rows", changes=False),
        look=Act("look", "sqlite3 shop.db 'select count(*) from orders'", goal="look around again", changes=False),
        review=Act("review", "sqlite3 shop.db 'select count(*) from stock'", goal="look over the results", changes=False),
        finish=Act("finish", "sqlite3 shop.db 'pragma user_version=2'", goal="mark the records as done"),
        finish_probe=Probe("sqlite3 shop.db 'pragma user_version'", "2"))


def _query(statement: str) -> str:
    return f'sqlite3 shop.db "{statement}"'


def _deliverables() -> list[Deliverable]:
    return [(_entered, _billed, _stored, _counted)[place % 4](name) for place, name in enumerate(WOODS)]


def _entered(name: str) -> Deliverable:
    return Deliverable(f"{name} order", STATUS, _query(f"replace into orders values('{name}', '<V>')"),
                       lambda code: Probe(_query(f"select status from orders where name='{name}'"), code))


def _billed(name: str) -> Deliverable:
    return Deliverable(f"{name} order", CURRENCY, _query(f"replace into bills values('{name}', '<V>')"),
                       lambda code: Probe(_query(f"select currency from bills where name='{name}'"), code))


def _stored(name: str) -> Deliverable:
    return Deliverable(f"{name} record", TABLE, _query(f"insert into <V> values('{name}')"),
                       lambda code: Probe(_query(f"select count(*) > 0 from {code} where name='{name}'"), "1"))


def _counted(name: str) -> Deliverable:
    return Deliverable(f"{name} stock", UNIT, _query(f"replace into stock values('{name}', '<V>')"),
                       lambda code: Probe(_query(f"select unit from stock where name='{name}'"), code))


def _discoveries(doubled: str, column: str, good: str, bad: str, order: list[str]) -> list[Discovery]:
    prices = tuple(Deliverable(f"{item} prices", COLUMN, _query(f"update prices set <V>=5 where name='{item}'"),
                               lambda code, item=item: Probe(_query(f"select {code} from prices where name='{item}'"), "5.0"))
                   for item in ("floor", "door"))
    posts = tuple(Deliverable(f"{part} post", MODE, _query(f"insert into posts values('{part}', '<V>')"),
                              lambda code, part=part: Probe(_query(f"select count(*) > 0 from posts where part='{part}'"), "1"))
                  for part in ("morning", "evening"))
    drops = (Deliverable("doubled row", SUPPLIER, _query(
        "delete from rows where rowid in (select max(rowid) from rows where supplier='<V>' group by item having count(*) > 1)"),
        lambda code: Probe(_query("select count(*) from doubled"), "0")),)
    imports = tuple(Deliverable("import next in line", NEXT, _query("insert into imported values('<V>'); select * from next_import"),
                                lambda code: Probe(_query(f"select supplier from imported where supplier='{code}'"), code))
                    for _ in range(3))
    return [
        Discovery("grounding", "prices", COLUMN, Act("read schema", "sqlite3 shop.db '.schema prices'", goal="read the schema of prices",
                                                     changes=False),
                  ((column, f"CREATE TABLE prices (name text, {column} real);"),), prices),
        Discovery("failure_loop", "post", MODE,
                  Act("try post", _query(f"insert into posts values('trial', '{bad}')"), goal=f"post a trial in mode {bad}", fails=True),
                  ((good, f"post in mode {bad} failed; post in mode {good}"),), posts, rivals=(bad,)),
        Discovery("diagnosis", "doubled row", SUPPLIER,
                  Act("find doubled", "sqlite3 shop.db 'select * from doubled'", goal="find out where a row is doubled", changes=False),
                  ((doubled, f"doubled row found in {doubled}"),), drops),
        Discovery("progress", "import", NEXT, None,
                  tuple((name, f"The import to do first: {name}." if place == 0 else f"import to do next: {name}")
                        for place, name in enumerate(order[:3])), imports, rivals=tuple(order)),
    ]
