package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// postgresSuperuser owns the databases of a private server.
const postgresSuperuser = "postgres"

// PostgresConfig says where a private PostgreSQL keeps its data and how careful it is.
// The zero value is a throw-away server for tests.
type PostgresConfig struct {
	// Dir is kept between runs. It is made when missing, and the server in it may only be
	// used by one process at a time. Empty: a temporary directory, removed by Stop.
	Dir string
	// Fsync makes a commit survive a crash, of the server or of the machine. Without it
	// commits are some times faster, a crash of the server may cost the last of them, and
	// one of the machine the whole data.
	Fsync bool
	// Authority signs the server's certificate. It lets nobody in without TLS then, and its
	// DSN checks the certificate. Nil: plain text.
	Authority *Authority
	// Download allows fetching PostgreSQL when the machine has none.
	Download bool
	// Logger hears about downloads. Default: nobody.
	Logger *slog.Logger
}

// WithDefaults returns c with its unset fields filled in.
func (c PostgresConfig) WithDefaults() PostgresConfig {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Postgres is a private PostgreSQL server.
type Postgres struct {
	srv      *server
	port     int
	password string
	trusted  string // file with what clients must trust; empty: no TLS
}

// StartPostgres starts a PostgreSQL server with the newest binaries found on PATH or in
// /usr/lib/postgresql, or those that wrote the data directory. As root it runs as user
// postgres or nobody, to whom it gives Dir. Only where there is no /proc that user must
// be able to reach Dir by its path.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	p, err := startPostgres(ctx, cfg.WithDefaults())
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return p, nil
}

func startPostgres(ctx context.Context, cfg PostgresConfig) (_ *Postgres, err error) {
	dir, err := openDir(cfg.Dir, "postgres")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.close())
		}
	}()
	cluster, err := openCluster(ctx, cfg, dir)
	if err != nil {
		return nil, err
	}
	p := &Postgres{password: cluster.password}
	if cfg.Authority != nil {
		if err := cluster.secure(cfg.Authority); err != nil {
			return nil, err
		}
		p.trusted = dir.file(trustedFile)
	}
	err = onFreePorts(1, func(ports []int) error {
		p.port = ports[0]
		p.srv = cluster.server(cfg, ports[0])
		return p.srv.start(ctx)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// server is the server process of the cluster, not yet started.
func (c *postgresCluster) server(cfg PostgresConfig, port int) *server {
	args := []string{
		"-D", c.seen("data"), "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", // none: a path may be too long for one
		"-c", "timezone=UTC",
		"-c", "shared_buffers=32MB",
		"-c", "max_connections=200",
	}
	if !cfg.Fsync {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
	}
	if cfg.Authority != nil {
		args = append(args, "-c", "ssl=on", "-c", "ssl_cert_file="+c.seen(certificateFile), "-c", "ssl_key_file="+c.seen(keyFile),
			"-c", "hba_file="+c.seen(tlsOnlyFile))
	}
	return &server{
		dir: c.dir,
		// It is asked to stop by a fast shutdown, which ends sessions and writes a
		// checkpoint. An orphan gets the immediate one: the postmaster takes its children
		// along. They are in process groups of their own, so no signal to a group would
		// reach them.
		cmd:   c.command("postgres", args, syscall.SIGINT, syscall.SIGQUIT),
		ready: c.ready,
	}
}

// ready reads the state that the postmaster notes in its pid file. Unlike a connection
// it cannot be answered by a stranger on the same port.
func (c *postgresCluster) ready(_ context.Context, s *server) (bool, error) {
	const pidLine, stateLine = 0, 7
	text, err := os.ReadFile(c.pidFile())
	if err != nil {
		return false, nil //nolint:nilerr // not written yet
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) > stateLine &&
		lines[pidLine] == strconv.Itoa(s.child.pid()) &&
		strings.TrimSpace(lines[stateLine]) == "ready", nil
}

// DSN is the connection string of one of its databases; "postgres" always exists.
func (p *Postgres) DSN(db string) string {
	security := url.Values{"sslmode": {"disable"}}
	if p.trusted != "" {
		security = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {p.trusted}}
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(postgresSuperuser, p.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:     "/" + db,
		RawQuery: security.Encode(),
	}
	return u.String()
}

// CreateDatabase makes a database as a copy of template, to which nobody may be
// connected; an empty template stands for the empty template0.
func (p *Postgres) CreateDatabase(ctx context.Context, name, template string) error {
	if template == "" {
		template = "template0"
	}
	sql := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize())
	if err := p.exec(ctx, sql); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// EnsureDatabase makes an empty database unless there is one of that name.
func (p *Postgres) EnsureDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	return p.CreateDatabase(ctx, name, "")
}

// DropDatabase ends every session in the database and removes it; none is no error.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	sql := fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", pgx.Identifier{name}.Sanitize())
	if err := p.exec(ctx, sql); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func (p *Postgres) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Stop ends all sessions and the server, and removes a temporary directory.
func (p *Postgres) Stop() error { return p.srv.Stop() }

// Kill crashes the server: sessions end, nothing is written any more, and the next
// start has to recover. Port and directory stay reserved for Restart.
func (p *Postgres) Kill() error {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	// Not SIGKILL: its children would outlive the postmaster by a moment and keep the
	// shared memory, and with it a restart, busy.
	return p.srv.child.stop(syscall.SIGQUIT, stopGrace)
}

// Restart starts the server again on the same port, stopping it first if it runs.
func (p *Postgres) Restart(ctx context.Context) error { return p.srv.Restart(ctx) }

// Done is closed when the current server process has ended, whoever ended it.
func (p *Postgres) Done() <-chan struct{} { return p.srv.Done() }
