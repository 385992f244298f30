package devstack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// process is one process of this machine; a number alone may be given out again.
type process struct {
	pid, parent int
	state       string
	started     string
	name        string
}

// readProcess reads what the kernel says about a process.
func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	// pid (name) state ppid …; the name may hold anything, a parenthesis too.
	open, end := strings.Index(string(text), "("), strings.LastIndex(string(text), ")")
	fields := strings.Fields(string(text)[end+1:])
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, false
	}
	return process{pid: pid, state: fields[0], parent: parent, started: fields[19], name: string(text)[open+1 : end]}, true
}

// alive reports whether this very process runs. One that nobody has reaped yet does not.
func (p process) alive() bool {
	now, ok := readProcess(p.pid)
	return ok && now.started == p.started && now.state != "Z" && now.state != "X"
}

// descendants lists the children of a process, their children, and so on.
func descendants(tb testing.TB, root int) []process {
	tb.Helper()
	entries, err := os.ReadDir("/proc")
	must(tb, err)
	children := map[int][]process{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			found = append(found, p)
			queue = append(queue, p.pid)
		}
	}
	return found
}

func TestKilledParentLeavesNoServerBehind(t *testing.T) {
	t.Parallel()
	parent := startProgram(t, "all", devstack.OpenTempDir(t))
	// The postmaster has children of its own, and a frozen server must not stay either.
	killWithServers(t, parent, map[string]int{"postgres": 2, "redis-server": 2, "java": 1})
}

func TestKilledParentLeavesNoServerInClosedDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(closedDir(t, devstack.OpenTempDir(t)), "pg")
	parent := startProgram(t, "postgres", dir)
	execute(t, parent.DSN, "CREATE TABLE unit (name text); INSERT INTO unit VALUES ('kept')")
	killWithServers(t, parent, map[string]int{"postgres": 2})

	p := startPostgres(t, devstack.PostgresConfig{Dir: dir, Fsync: true})
	if got := query(t, p.DSN("postgres"), "SELECT name FROM unit"); got != "kept" {
		t.Errorf("the table holds %q", got)
	}
}

func TestTemporaryDirectoriesOfAKilledParentAreSwept(t *testing.T) {
	tmp := devstack.OpenTempDir(t)
	t.Setenv("TMPDIR", tmp)
	inUse, err := devstack.StartRedis(startContext(t), devstack.RedisConfig{})
	must(t, err)
	t.Cleanup(func() { must(t, inUse.Stop()) })
	dirs := func() int {
		found, err := filepath.Glob(filepath.Join(tmp, "flashgate-*"))
		must(t, err)
		return len(found)
	}
	parent := startProgram(t, "throwaway", "")
	if n := dirs(); n != 3 {
		t.Fatalf("%d directories while the program runs", n)
	}
	killWithServers(t, parent, map[string]int{"postgres": 2, "redis-server": 1})
	if n := dirs(); n != 3 {
		t.Fatalf("%d directories after its end", n)
	}

	r, err := devstack.StartRedis(startContext(t), devstack.RedisConfig{})
	must(t, err)
	t.Cleanup(func() { must(t, r.Stop()) })
	if n := dirs(); n != 2 {
		t.Errorf("%d directories after the next start", n)
	}
	if got := redisDo(inUse.Addr(), 10*time.Second, "PING"); got != "+PONG" {
		t.Errorf("the server that ran all the time says %q", got)
	}
}

// killWithServers kills the program, which must have at least these servers, and waits
// for the end of them all.
func killWithServers(t *testing.T, parent *program, want map[string]int) {
	t.Helper()
	servers := descendants(t, parent.cmd.Process.Pid)
	counts := map[string]int{}
	for _, p := range servers {
		counts[p.name]++
	}
	for name, n := range want {
		if counts[name] < n {
			t.Fatalf("the program started %v", counts)
		}
	}
	parent.kill()
	devtest.Eventually(t, time.Minute, func() bool {
		for _, p := range servers {
			if p.alive() {
				return false
			}
		}
		return true
	}, "all of %v gone", fmt.Sprint(servers))
}

// The parent-death signal is sent when the thread that forked a child ends.
func TestServerOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	thread := make(chan int, 1)
	started := make(chan *devstack.Redis, 1)
	ctx := startContext(t)
	start := func() {
		r, err := devstack.StartRedis(ctx, devstack.RedisConfig{})
		if err != nil {
			t.Error(err)
		}
		thread <- unix.Gettid()
		started <- r
	}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() != os.Getpid() {
			start()
			return
		}
		// The first thread of a process does not end before the process. While it is held here, another goroutine is on another thread.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			start()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
	tid, r := <-thread, <-started
	if r == nil {
		t.FailNow()
	}
	t.Cleanup(func() { must(t, r.Stop()) })
	devtest.Eventually(t, time.Minute, func() bool {
		_, err := os.Stat(filepath.Join("/proc/self/task", strconv.Itoa(tid)))
		return os.IsNotExist(err)
	}, "the thread is gone")
	if got := redisDo(r.Addr(), 10*time.Second, "PING"); got != "+PONG" {
		t.Errorf("the server says %q", got)
	}
}

func TestPostgresRunsUnprivileged(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t)
	servers := 0
	for _, p := range descendants(t, os.Getpid()) {
		info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(p.pid)))
		if p.name != "postgres" || err != nil {
			continue // something else, or gone meanwhile
		}
		servers++
		if info.Sys().(*syscall.Stat_t).Uid == 0 {
			t.Errorf("process %d runs as root", p.pid)
		}
	}
	if servers == 0 {
		t.Error("no server found")
	}
}
