package devstack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// storedXZ puts data into the container format xz without compressing it: one block of
// literal chunks, as the format's specification lays it out.
func storedXZ(data []byte) []byte {
	sum := func(b []byte) []byte { return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)) }
	flags := []byte{0, 1} // the check is a CRC32

	header := []byte{2, 0, 0x21, 1, 0x16, 0, 0, 0} // 12 bytes; one filter, LZMA2, 8 MiB dictionary
	block := append(header, sum(header)...)
	for rest, control := data, byte(1); len(rest) > 0; control = 2 {
		chunk := rest[:min(len(rest), 1<<16)]
		block = append(block, control)
		block = binary.BigEndian.AppendUint16(block, uint16(len(chunk)-1))
		block = append(block, chunk...)
		rest = rest[len(chunk):]
	}
	block = append(block, 0)
	unpadded := len(block) + crc32.Size
	for len(block)%4 != 0 {
		block = append(block, 0)
	}
	block = append(block, sum(data)...)

	index := []byte{0, 1}
	index = binary.AppendUvarint(index, uint64(unpadded))
	index = binary.AppendUvarint(index, uint64(len(data)))
	for len(index)%4 != 0 {
		index = append(index, 0)
	}
	index = append(index, sum(index)...)

	footer := binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1))
	footer = append(footer, flags...)

	out := append([]byte("\xfd7zXZ\x00"), flags...)
	out = append(out, sum(flags)...)
	out = append(out, block...)
	out = append(out, index...)
	out = append(out, sum(footer)...)
	out = append(out, footer...)
	return append(out, "YZ"...)
}

// postgresArchive packs programs that call the installed PostgreSQL in the way in which
// the real archive is packed.
func postgresArchive(t *testing.T, installed postgresBinaries) []byte {
	t.Helper()
	var tarball bytes.Buffer
	tw := tar.NewWriter(&tarball)
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", installed.tool(name))
		if err := tw.WriteHeader(&tar.Header{Name: "bin/" + name, Mode: 0o755, Size: int64(len(script)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(script)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	zw := zip.NewWriter(&jar)
	w, err := zw.Create("postgres-any.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(storedXZ(tarball.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}

// serveArchive is a repository that has one archive under every name; it counts what it
// is asked for.
func serveArchive(t *testing.T, archive []byte) (embedded.Config, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	digest := sha256.Sum256(archive)
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch {
		case archive == nil:
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".sha256"):
			_, _ = w.Write([]byte(hex.EncodeToString(digest[:])))
		default:
			_, _ = w.Write(archive)
		}
	}))
	t.Cleanup(repository.Close)
	return embedded.DefaultConfig().BinaryRepositoryURL(repository.URL), &asked
}

// newCache is a place for downloads. The module drops a log file into the directory for
// temporary files and forgets it, so the test has one of its own.
func newCache(t *testing.T) string {
	t.Helper()
	t.Setenv("TMPDIR", OpenTempDir(t))
	return filepath.Join(OpenTempDir(t), "cache")
}

func TestDownloadedPostgresServes(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	user, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	cfg := PostgresConfig{}.WithDefaults()
	installed, err := findPostgres(ctx, cfg, 0, user)
	if err != nil {
		t.Fatal(err)
	}
	source, asked := serveArchive(t, postgresArchive(t, installed))
	cache := newCache(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))

	bin, err := fetchPostgres(ctx, source, logger, cache, 0, user)
	if err != nil {
		t.Fatal(err)
	}
	if bin.dir != filepath.Join(cache, "postgres-18", "bin") || bin.version != installed.version {
		t.Errorf("unpacked %+v", bin)
	}
	if !strings.Contains(log.String(), "downloading PostgreSQL") {
		t.Errorf("the user was told %q", log.String())
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v", left)
	}

	before := asked.Load()
	if again, err := fetchPostgres(ctx, source, logger, cache, 0, user); err != nil || again != bin {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if asked.Load() != before {
		t.Error("it was downloaded twice")
	}

	dir, err := openDir("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	cluster := &postgresCluster{dir: dir, data: dir.file("data"), bin: bin, user: user}
	for _, err := range []error{user.own(dir.path), cluster.readPassword(), cluster.init(ctx, cfg)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	server := cluster.server(cfg, ports[0])
	if err := server.start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}

func TestFailedDownloadLeavesNothing(t *testing.T) {
	source, asked := serveArchive(t, nil)
	cache := newCache(t)
	_, err := fetchPostgres(t.Context(), source, slog.New(slog.DiscardHandler), cache, 17, nil)
	if err == nil || !strings.Contains(err.Error(), "download PostgreSQL 17") || asked.Load() == 0 {
		t.Errorf("asked %d times, the error is %v", asked.Load(), err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 0 {
		t.Errorf("the cache holds %v", left)
	}
}

func TestPostgresThatFitsNothing(t *testing.T) {
	t.Parallel()
	_, err := fetchPostgres(t.Context(), embedded.DefaultConfig(), slog.New(slog.DiscardHandler), t.TempDir(), 12, nil)
	if err == nil || !strings.Contains(err.Error(), "written by PostgreSQL 12") {
		t.Errorf("the error is %v", err)
	}
}
