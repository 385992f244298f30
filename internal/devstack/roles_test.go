package devstack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"flashgate/internal/devstack"
)

// roleVariable makes the test binary play a program instead of running tests.
const (
	roleVariable = "DEVSTACK_TEST_ROLE"
	dirVariable  = "DEVSTACK_TEST_DIR"
)

// reply is the one line that a role prints when its servers are up.
type reply struct {
	Error   string
	DSN     string
	Brokers []string
}

// roles start servers in dir and leave them running.
var roles = map[string]func(ctx context.Context, dir string) (reply, error){
	"all":       roleAll,
	"postgres":  rolePostgres,
	"kfake":     roleKfake,
	"throwaway": roleThrowaway,
}

func rolePostgres(ctx context.Context, dir string) (reply, error) {
	p, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Dir: dir, Fsync: true})
	if err != nil {
		return reply{}, err
	}
	return reply{DSN: p.DSN("postgres")}, nil
}

func roleKfake(_ context.Context, dir string) (reply, error) {
	k, err := devstack.StartKfake(devstack.KfakeConfig{Dir: dir})
	if err != nil {
		return reply{}, err
	}
	return reply{Brokers: k.Brokers()}, nil
}

// roleThrowaway starts servers in temporary directories.
func roleThrowaway(ctx context.Context, _ string) (reply, error) {
	if _, err := devstack.StartRedis(ctx, devstack.RedisConfig{}); err != nil {
		return reply{}, err
	}
	_, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	return reply{}, err
}

func roleAll(ctx context.Context, dir string) (reply, error) {
	out, err := rolePostgres(ctx, filepath.Join(dir, "postgres"))
	if err != nil {
		return out, err
	}
	if _, err := devstack.StartRedis(ctx, devstack.RedisConfig{Dir: filepath.Join(dir, "redis")}); err != nil {
		return out, err
	}
	frozen, err := devstack.StartRedis(ctx, devstack.RedisConfig{Dir: filepath.Join(dir, "frozen")})
	if err != nil {
		return out, err
	}
	if err := frozen.Pause(); err != nil {
		return out, err
	}
	_, err = devstack.StartKafka(ctx, devstack.KafkaConfig{Dir: filepath.Join(dir, "kafka")})
	return out, err
}

// runRole plays the program: it reports on stdout and waits to be killed, or for the end
// of its standard input, so that it does not outlive a test that fails.
func runRole(role string) {
	out, err := roles[role](context.Background(), os.Getenv(dirVariable))
	if err != nil {
		out.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// program is a test binary that plays a role.
type program struct {
	tb    testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	reply
}

// startProgram runs the test binary in a role and waits until its servers are up.
func startProgram(tb testing.TB, role, dir string) *program {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, dirVariable+"="+dir)
	cmd.Stderr = os.Stderr
	p := &program{tb: tb, cmd: cmd}
	p.stdin, err = cmd.StdinPipe()
	must(tb, err)
	stdout, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	tb.Cleanup(p.kill)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	must(tb, err)
	must(tb, json.Unmarshal(line, &p.reply))
	if p.Error != "" {
		tb.Fatal(p.Error)
	}
	return p
}

// kill ends the program as kill -9 does, and waits for it.
func (p *program) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		p.tb.Error(err)
	}
	_ = p.cmd.Wait() // it reports the signal
	_ = p.stdin.Close()
}
