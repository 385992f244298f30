// Package devstack starts the private servers that flashgate's own `dev` command and
// its tests run against: PostgreSQL, Redis and Apache Kafka as child processes, and an
// in-process Redis and Kafka for where a real one is not needed.
//
// Every server listens on 127.0.0.1, on a port that was free a moment ago, and keeps
// its files in a directory of its own. A child process gets its own process group, so
// that a Ctrl-C at the terminal reaches flashgate alone; a bare environment, so that
// nothing of the user's settings changes how it behaves; and a parent-death signal, so
// that nothing is left behind when flashgate is killed with -9 (Linux only).
//
// A started server is safe for concurrent use. The context of a Start function bounds
// the start, never the life of the server. Stop may be called any number of times and
// returns when the process is gone.
//
// Servers can be made as strict as those of a real deployment: with passwords, and with
// TLS by an Authority that exists for them alone.
//
// # Reading guide
//
//	process.go       one child process: start, signal, reap
//	server.go        a child that can be stopped and started again with the same command
//	ports.go         free ports
//	dir.go           the directory of a server: temporary or kept, locked
//	sweep.go         temporary directories that killed processes left behind
//	user.go          who runs PostgreSQL when flashgate is root
//	entrance.go      how that user gets into a directory below a closed one
//	postgres*.go     PostgreSQL: binaries, data directory, databases
//	redis.go         a real Redis          miniredis.go   the in-process one
//	redis_*.go       who gets in; a Redis Cluster; a Redis with Sentinels
//	kafka*.go        a real broker         kfake.go       the in-process one
//	authority.go     certificates
//	devtest/         the same for tests: shared servers, fresh databases
package devstack
