package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// downloadable names the release of each major version that can be fetched.
var downloadable = map[int]embedded.PostgresVersion{
	15: embedded.V15,
	16: embedded.V16,
	17: embedded.V17,
	18: embedded.V18,
}

// newestDownloadable is what a new data directory gets.
const newestDownloadable = 18

// downloadPostgres fetches binaries into the user's cache, unless they are there, for a
// data directory of version want (0: a new one).
func downloadPostgres(ctx context.Context, logger *slog.Logger, want int, user *account) (postgresBinaries, error) {
	cache, err := postgresCache()
	if err != nil {
		return postgresBinaries{}, err
	}
	return fetchPostgres(ctx, embedded.DefaultConfig(), logger, cache, want, user)
}

// postgresCache is where downloads are kept. As root that is not root's own cache: the
// server's user could not enter it.
func postgresCache() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/flashgate", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for PostgreSQL: %w", err)
	}
	return filepath.Join(cache, "flashgate"), nil
}

func fetchPostgres(ctx context.Context, source embedded.Config, logger *slog.Logger, cache string, want int, user *account) (postgresBinaries, error) {
	if want == 0 {
		want = newestDownloadable
	}
	release, ok := downloadable[want]
	if !ok {
		return postgresBinaries{}, fmt.Errorf("the data directory was written by PostgreSQL %d, which is not installed and cannot be downloaded", want)
	}
	home := filepath.Join(cache, "postgres-"+strconv.Itoa(want))
	if b, err := inspectPostgres(ctx, filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // programs, to be run by another user
		return postgresBinaries{}, fmt.Errorf("make a place for PostgreSQL: %w", err)
	}
	if err := user.mayEnter(home); err != nil {
		return postgresBinaries{}, err
	}
	logger.Info("downloading PostgreSQL, as none is installed", "version", string(release), "to", home)
	// Unpacked beside its place and renamed: what is in place is whole, even if two
	// processes download at once or one is interrupted.
	scratch, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return postgresBinaries{}, fmt.Errorf("make a place for PostgreSQL: %w", err)
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // rubbish in a cache
	unpacked := filepath.Join(scratch, "unpacked")
	if err := unpackPostgres(ctx, source.Version(release), scratch, unpacked); err != nil {
		return postgresBinaries{}, fmt.Errorf("download PostgreSQL %s: %w; install PostgreSQL %d or newer (Debian: apt-get install postgresql), or name a server in FLASHGATE_DATABASE_URL", release, err, oldestPostgres)
	}
	if err := os.Chmod(unpacked, 0o755); err != nil { //nolint:gosec // programs, to be run by another user
		return postgresBinaries{}, fmt.Errorf("put PostgreSQL in place: %w", err)
	}
	if err := os.RemoveAll(home); err != nil {
		return postgresBinaries{}, fmt.Errorf("put PostgreSQL in place: %w", err)
	}
	renamed := os.Rename(unpacked, home)
	b, err := inspectPostgres(ctx, filepath.Join(home, "bin"))
	if err != nil {
		return b, fmt.Errorf("put PostgreSQL in place: %w", errors.Join(renamed, err))
	}
	return b, nil
}

// unpackPostgres has the embedded-postgres module download and unpack its binaries, and
// nothing more. The module has no function for that alone, and a server started by it
// would neither end with us nor run as another user. So it is given a data directory
// that cannot exist, below a plain file: the step after unpacking fails, before it
// starts any process, and the programs are there.
func unpackPostgres(ctx context.Context, source embedded.Config, scratch, into string) error {
	obstacle := filepath.Join(scratch, "obstacle")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		return err
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	source = source.
		Port(uint32(ports[0])).
		CachePath(filepath.Join(scratch, "archive")).
		RuntimePath(filepath.Join(scratch, "runtime")).
		BinariesPath(into).
		DataPath(filepath.Join(obstacle, "data")).
		Logger(io.Discard)
	// The module takes no context; a download that is given up goes on in the background
	// until its connection ends, in a directory that is gone by then.
	stopped := make(chan error, 1)
	logs := moduleLogs()
	go func() { stopped <- embedded.NewDatabase(source).Start() }()
	select {
	case err = <-stopped:
	case <-ctx.Done():
		return ctx.Err()
	}
	removeNew(logs)
	http.DefaultClient.CloseIdleConnections() // the module's; nobody else downloads
	if _, missing := inspectPostgres(ctx, filepath.Join(into, "bin")); missing != nil {
		if err != nil {
			return err // what is missing follows from it
		}
		return missing
	}
	return nil
}

// moduleLogs are the files that the module makes for the log of a server, wherever it is told to log, and never removes.
func moduleLogs() []string {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*")) // the pattern is well-formed
	return found
}

// removeNew removes those that have come since, if nothing is in them: another process may be making one of its own.
func removeNew(before []string) {
	for _, path := range moduleLogs() {
		if info, err := os.Stat(path); err == nil && info.Size() == 0 && !slices.Contains(before, path) {
			_ = os.Remove(path) // somebody else's stays
		}
	}
}
