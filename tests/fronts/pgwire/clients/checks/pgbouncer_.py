"""pgbouncer between psycopg and the server: pools of sessions and of transactions."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psycopg
from report import ESTIMATE, ROWS, SELECT, check, failed, summed, variables, version

host, port, user, password, database = variables()
said = subprocess.run(["/usr/sbin/pgbouncer", "-V"], capture_output=True, text=True).stdout
version(said.split()[1])


@contextmanager
def bouncer(mode, size=2):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        at = probe.getsockname()[1]
    root = os.getuid() == 0  # it refuses to run as root
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "users").write_text(f'"{user}" "{password}"\n')
        (home / "ini").write_text(
            f"[databases]\n{database} = host={host} port={port} dbname={database}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {at}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {home}/users\npool_mode = {mode}\n"
            f"default_pool_size = {size}\nserver_reset_query = DISCARD ALL\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        if root:
            for path in (home, home / "users", home / "ini"):
                shutil.chown(path, "postgres")
        process = subprocess.Popen(
            ["/usr/sbin/pgbouncer", "-q", str(home / "ini")],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            **({"user": "postgres", "group": "postgres"} if root else {}),
        )  # fmt: skip
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", at)) == 0:
                        break
                time.sleep(0.1)
            yield lambda **more: psycopg.connect(
                **{"host": "127.0.0.1", "port": at, "autocommit": True, **more}
            )
        finally:
            process.terminate()
            process.wait(30)


for mode in ("session", "transaction"):
    with bouncer(mode) as connect:

        @check(f"password, {mode}")
        def _(connect=connect):
            return failed(
                lambda: connect(password="wrong"), lambda problem: "failed" in str(problem)
            )

        @check(f"select, {mode}")
        def _(connect=connect):
            with connect() as con:
                return con.execute(SELECT).fetchall()

        @check(f"parameters, {mode}")
        def _(connect=connect):
            with connect() as con:
                text = "select count(*) from sales where qty in (%s,%s) and region = any(%s)"
                return con.execute(text, [1, 2, ["north"]], prepare=False).fetchone()[0]

        @check(f"more clients than connections, {mode}")
        def _(connect=connect, mode=mode):
            open_ = [connect() for _ in range(2 if mode == "session" else 5)]
            found = [con.execute("select count(*) from sales").fetchone()[0] for con in open_]
            for con in open_:
                con.close()
            return found

        if mode == "session":

            @check("reset")
            def _(connect=connect):
                with connect() as con:
                    con.execute("set statement_timeout = 12345")
                time.sleep(0.3)
                with connect() as con:
                    return con.execute("show statement_timeout").fetchone()[0] != "12345ms"

        @check(f"transaction, {mode}")
        def _(connect=connect):
            with connect(autocommit=False) as con:
                state = failed(
                    lambda: con.execute("select nosuch from sales"), lambda p: p.sqlstate
                )
                con.rollback()
                return [state, con.execute("select count(*) from sales").fetchone()[0]]

        @check(f"cursor, {mode}")
        def _(connect=connect):
            with connect(autocommit=False) as con, con.cursor(name="nm") as cursor:
                return summed(cursor.execute(ROWS))

        @check(f"copy, {mode}")
        def _(connect=connect):
            with connect() as con, con.cursor().copy(f"copy ({ROWS}) to stdout") as copy:
                return summed(copy.rows())

        @check(f"cancel, {mode}")
        def _(connect=connect):
            with connect() as con:
                con.execute("set statement_timeout = 300")
                return failed(lambda: con.execute("select pg_sleep(20)"), lambda p: p.sqlstate)

        check(f"estimate, {mode}")(
            lambda connect=connect: connect().execute(ESTIMATE).fetchone()[0]
        )
