package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// oldestPostgres is the oldest major version that the product runs on.
const oldestPostgres = 15

// postgresBinaries is a directory with postgres and initdb of one version.
type postgresBinaries struct {
	dir     string
	version int
}

func (b postgresBinaries) tool(name string) string { return filepath.Join(b.dir, name) }

// findPostgres looks for binaries that can serve a data directory written by version
// want; 0 stands for a new one, which gets the newest found. A data directory is never
// upgraded here.
func findPostgres(ctx context.Context, cfg PostgresConfig, want int, user *account) (postgresBinaries, error) {
	var best postgresBinaries
	var found []string
	for _, dir := range postgresDirs() {
		b, err := inspectPostgres(ctx, dir)
		if err != nil {
			continue // half an installation, or one that does not run here
		}
		found = append(found, strconv.Itoa(b.version))
		if want != 0 && b.version == want {
			return b, nil
		}
		if want == 0 && b.version >= oldestPostgres && b.version > best.version {
			best = b
		}
	}
	if best.dir != "" {
		return best, nil
	}
	if cfg.Download {
		return downloadPostgres(ctx, cfg.Logger, want, user)
	}
	installed := "none is installed"
	if len(found) > 0 {
		installed = "installed: " + strings.Join(found, ", ")
	}
	if want != 0 {
		return postgresBinaries{}, fmt.Errorf("the data directory was written by PostgreSQL %d, which it needs (%s): install that version, or use another directory", want, installed)
	}
	return postgresBinaries{}, fmt.Errorf("find PostgreSQL %d or newer (%s): not on PATH and not in /usr/lib/postgresql", oldestPostgres, installed)
}

// postgresDirs lists the places where binaries may be, the one on PATH first.
func postgresDirs() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	packaged, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err == nil {
		dirs = append(dirs, packaged...)
	}
	return dirs
}

var postgresVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspectPostgres checks that dir has what a server needs, and asks for the version.
func inspectPostgres(ctx context.Context, dir string) (postgresBinaries, error) {
	if dir == "" {
		return postgresBinaries{}, errors.New("inspect PostgreSQL: no directory")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return postgresBinaries{}, fmt.Errorf("inspect PostgreSQL: %w", err)
	}
	b := postgresBinaries{dir: dir}
	if _, err := os.Stat(b.tool("initdb")); err != nil {
		return b, fmt.Errorf("inspect PostgreSQL: %w", err)
	}
	cmd := exec.CommandContext(ctx, b.tool("postgres"), "--version")
	cmd.Env = bareEnvironment()
	out, err := cmd.Output()
	if err != nil {
		return b, fmt.Errorf("ask %s for its version: %w", b.tool("postgres"), err)
	}
	match := postgresVersion.FindSubmatch(out)
	if match == nil {
		return b, fmt.Errorf("ask %s for its version: it says %q", b.tool("postgres"), out)
	}
	b.version, err = strconv.Atoi(string(match[1]))
	return b, err
}
