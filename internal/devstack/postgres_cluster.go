package devstack

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftoverWait is how long a server left over by a killed flashgate may take to end. It
// gets its signal at once and cuts off its children; five seconds later it kills them.
const leftoverWait = 15 * time.Second

// postgresCluster is a data directory, ready to be served.
type postgresCluster struct {
	dir      *workDir
	data     string
	bin      postgresBinaries
	user     *account
	entrance *entrance // nil: the user reaches the directory by its path
	password string
}

func (c *postgresCluster) pidFile() string { return filepath.Join(c.data, "postmaster.pid") }

// openCluster finds the data directory in dir, or makes one, and binaries that fit it.
func openCluster(ctx context.Context, cfg PostgresConfig, dir *workDir) (*postgresCluster, error) {
	c := &postgresCluster{dir: dir, data: dir.file("data")}
	var err error
	if c.user, err = unprivileged(); err != nil {
		return nil, err
	}
	if err := c.reach(); err != nil {
		return nil, err
	}
	if err := c.user.own(dir.path); err != nil {
		return nil, fmt.Errorf("give %s to the server's user: %w", dir.path, err)
	}
	version, err := dataVersion(c.data)
	if err != nil {
		return nil, err
	}
	if c.bin, err = findPostgres(ctx, cfg, version, c.user); err != nil {
		return nil, err
	}
	if err := c.readPassword(); err != nil {
		return nil, err
	}
	if version == 0 {
		return c, c.init(ctx, cfg)
	}
	return c, c.clearLeftover(ctx)
}

// reach makes sure that the server's user gets into the directory.
func (c *postgresCluster) reach() error {
	err := c.user.mayEnter(c.dir.path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	opened, failed := openEntrance(c.dir.path, ownDescriptors)
	if failed != nil {
		return errors.Join(err, failed)
	}
	c.entrance, c.dir.entrance = opened, opened
	return nil
}

// seen is the path of a file in the directory as the server's user reaches it.
func (c *postgresCluster) seen(name string) string {
	if c.entrance == nil {
		return c.dir.file(name)
	}
	return c.entrance.file(name)
}

// command runs one of PostgreSQL's programs as the server's user. It writes to a log
// named after it.
func (c *postgresCluster) command(name string, args []string, stop, orphaned syscall.Signal) command {
	cmd := command{
		name: name, path: c.bin.tool(name), args: args,
		dir: c.dir.path, log: c.dir.file(name + ".log"),
		credential: c.user.credential(), stop: stop, orphaned: orphaned,
	}
	if c.entrance != nil {
		c.entrance.admit(&cmd)
	}
	return cmd
}

// dataVersion is the major version that wrote a data directory, 0 where there is none.
func dataVersion(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read version of the data directory: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read version of the data directory %s: %w", data, err)
	}
	return version, nil
}

// readPassword reads the superuser's password, or makes one. The port is open to every
// user of this machine, and a superuser may run programs as the server's user.
func (c *postgresCluster) readPassword() error {
	file := c.dir.file("password")
	text, err := os.ReadFile(file)
	if err == nil {
		c.password = strings.TrimSpace(string(text))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the superuser's password: %w", err)
	}
	c.password = rand.Text()
	if err := errors.Join(os.WriteFile(file, []byte(c.password+"\n"), 0o600), c.user.own(file)); err != nil {
		return fmt.Errorf("keep the superuser's password: %w", err)
	}
	return nil
}

// tlsOnlyFile says who gets into a server with TLS: everybody who has a password, by a
// proof that does not show it.
const tlsOnlyFile = "hba-tls.conf"

// secure puts what a server with TLS needs into the directory.
func (c *postgresCluster) secure(a *Authority) error {
	if err := a.equip(c.dir, c.user); err != nil {
		return err
	}
	const everybody = "hostssl all all 127.0.0.1/32 scram-sha-256\n"
	if err := writePrivate(c.dir, c.user, tlsOnlyFile, []byte(everybody)); err != nil {
		return fmt.Errorf("write who may connect: %w", err)
	}
	return nil
}

// init makes the data directory under another name first, so that one which exists is
// whole: a start that was interrupted here leaves nothing that looks like data.
func (c *postgresCluster) init(ctx context.Context, cfg PostgresConfig) error {
	const freshData = "data.new"
	fresh := c.dir.file(freshData)
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove half a data directory: %w", err)
	}
	args := []string{
		"-D", c.seen(freshData), "-U", postgresSuperuser, "--pwfile", c.seen("password"), "-A", "password",
		"-E", "UTF8", "--locale=C", "--no-instructions",
	}
	if !cfg.Fsync {
		args = append(args, "--no-sync")
	}
	if err := run(ctx, c.command("initdb", args, syscall.SIGTERM, syscall.SIGKILL)); err != nil {
		return err
	}
	if err := os.Rename(fresh, c.data); err != nil {
		return fmt.Errorf("put the data directory in place: %w", err)
	}
	return nil
}

// clearLeftover deals with the pid file of an earlier run. A flashgate killed with -9
// takes its server along, but that needs a moment; and after a crash of the machine the
// number may belong to some other program by now, which PostgreSQL takes for a server.
func (c *postgresCluster) clearLeftover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leftoverWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pid, err := c.recordedPID()
		if err != nil || pid == 0 {
			return err
		}
		if !c.servedBy(pid) {
			if err := os.Remove(c.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a stale pid file: %w", err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another server, process %d, still runs in %s: %w", pid, c.data, ctx.Err())
		case <-tick.C:
		}
	}
}

// recordedPID is the first line of the pid file, 0 where there is no such file.
func (c *postgresCluster) recordedPID() (int, error) {
	text, err := os.ReadFile(c.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(line)))
	if err != nil {
		return 0, nil //nolint:nilerr // a torn file names no server
	}
	return pid, nil
}

// servedBy reports whether the process is a PostgreSQL server of this data directory. A
// server works inside its data directory.
func (c *postgresCluster) servedBy(pid int) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false
	}
	data, err := filepath.EvalSymlinks(c.data)
	return err == nil && cwd == data
}
