"""The drivers of the matrix: how each is installed and which program checks it.

``python -m tests.fronts.pgwire.clients.drivers`` prints the Debian packages of all of them, without
importing anything of privsql: CI installs these before the environment of the tests exists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Driver:
    """A driver, its packages and the command that runs its checks."""

    name: str
    program: str  # a file in ``checks``
    runner: str = "python"  # python, dbt, node, prisma, java, go, or a program of the system
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # files that show that the Debian packages are there


def _python(name: str, program: str, *pip: str, **more: tuple[str, ...]) -> Driver:
    return Driver(name, program, "python", pip=pip, **more)


def _node(name: str, program: str, *npm: str, runner: str = "node") -> Driver:
    return Driver(name, program, runner, ("nodejs", "npm"), npm=npm, needs=("/usr/bin/npm",))


def _system(name: str, program: str, runner: str, need: str, *apt: str) -> Driver:
    return Driver(name, program, runner, apt, needs=(need,))


_LIBRARIES = "/usr/lib/R/site-library"
_GO = "/usr/share/gocode/src/github.com"
DRIVERS = (
    _system("psql", "psql_.py", "python", "/usr/bin/psql", "postgresql-client"),
    _python("psycopg 3", "psycopg3.py", "psycopg[binary]"),
    _python("psycopg2", "psycopg2_.py", "psycopg2-binary"),
    _python("asyncpg", "asyncpg_.py", "asyncpg"),
    _python("pg8000", "pg8000_.py", "pg8000"),
    _python("SQLAlchemy", "alchemy.py", "sqlalchemy", "pandas", "psycopg[binary]"),
    Driver(
        "pgjdbc",
        "Jdbc.java",
        "java",
        ("default-jdk-headless", "libpostgresql-jdbc-java"),
        needs=("/usr/share/java/postgresql.jar", "/usr/bin/javac"),
    ),
    _node("node-postgres", "node_pg.js", "pg", "pg-cursor", "pg-copy-streams"),
    _node("postgres.js", "postgres_js.js", "postgres"),
    _node("Sequelize", "sequelize_.js", "sequelize", "pg"),
    _node("TypeORM", "typeorm_.js", "typeorm", "pg", "pg-query-stream"),
    _node("knex", "knex_.js", "knex", "pg", "pg-query-stream"),
    _node("Prisma", "prisma_.py", "prisma@6", runner="prisma"),
    _python(
        "pyodbc, psqlODBC",
        "pyodbc_.py",
        "pyodbc",
        apt=("odbc-postgresql", "unixodbc"),
        needs=("/usr/lib/x86_64-linux-gnu/odbc/psqlodbcw.so",),
    ),
    _system(
        "R RPostgreSQL",
        "rpostgresql.R",
        "Rscript",
        f"{_LIBRARIES}/RPostgreSQL",
        "r-cran-rpostgresql",
        "r-cran-jsonlite",
    ),
    _system(
        "R dbplyr",
        "dbplyr.R",
        "Rscript",
        f"{_LIBRARIES}/dbplyr",
        "r-cran-rpostgresql",
        "r-cran-dbplyr",
        "r-cran-jsonlite",
    ),
    _system(
        "Perl DBD::Pg",
        "dbd_pg.pl",
        "perl",
        "/usr/lib/x86_64-linux-gnu/perl5/5.36/DBD/Pg.pm",
        "libdbd-pg-perl",
    ),
    _system("Ruby pg", "ruby_pg.rb", "ruby", "/usr/bin/ruby", "ruby-pg"),
    _system("PHP PDO", "php_pdo.php", "php", "/usr/bin/php", "php-cli", "php-pgsql"),
    _system(
        "Go lib/pq", "lib_pq.go", "go", f"{_GO}/lib/pq", "golang-go", "golang-github-lib-pq-dev"
    ),
    _system(
        "Go pgx", "pgx_.go", "go", f"{_GO}/jackc/pgx", "golang-go", "golang-github-jackc-pgx-v4-dev"
    ),
    _system("Tcl tdbc", "tdbc.tcl", "tclsh", "/usr/bin/tclsh", "tcl", "tcl8.6-tdbc-postgres"),
    _python("ADBC", "adbc_.py", "adbc-driver-postgresql", "adbc-driver-manager", "pyarrow"),
    _python("connectorx", "connectorx_.py", "connectorx", "pandas", "pyarrow"),
    _python(
        "polars",
        "polars_.py",
        "polars",
        "connectorx",
        "pyarrow",
        "sqlalchemy",
        "psycopg[binary]",
        "adbc-driver-postgresql",
        "adbc-driver-manager",
    ),
    _python("ibis", "ibis_.py", "ibis-framework[postgres]", "packaging"),
    _python("Django", "django_.py", "django", "psycopg[binary]"),
    Driver("dbt", "dbt_.py", "dbt", pip=("dbt-core<1.10", "dbt-postgres<1.10")),
    Driver(
        "LibreOffice",
        "libreoffice_.py",
        "/usr/bin/python3",
        ("libreoffice-base", "libreoffice-sdbc-postgresql", "python3-uno"),
        needs=("/usr/lib/libreoffice/program/libpostgresql-sdbc-impllo.so",),
    ),
    _system("pgbench", "pgbench_.py", "python", "/usr/lib/postgresql/15/bin/pgbench", "postgresql"),
    Driver(
        "pgbouncer",
        "pgbouncer_.py",
        "python",
        ("pgbouncer",),
        ("psycopg[binary]",),
        needs=("/usr/sbin/pgbouncer",),
    ),
)


def packages() -> list[str]:
    """Debian packages of every driver and of PostgreSQL itself."""
    return sorted({"postgresql", *(name for driver in DRIVERS for name in driver.apt)})


if __name__ == "__main__":
    print("\n".join(packages()))
