package main

import (
	"log/slog"

	"flashgate/gateway"
)

const (
	// A process needs file descriptors beside those of its shoppers: for connections to PostgreSQL, Redis and Kafka, for operators, and for shoppers who
	// are being refused, 64 at a time. Some of that grows with the size of a system, and so does the limit that it is given.
	leastReserve, mostReserve = 256, 1024
	reserveShare              = 4
)

// roomForConns is the number of shoppers' connections for which a process that may have so many files open has room. Who opens connections and does nothing
// with them must not be able to take what the sale needs.
func roomForConns(files uint64) int {
	reserve := min(max(files/reserveShare, leastReserve), mostReserve, files/2)
	return int(max(min(files-reserve, gateway.DefaultMaxConns), 1))
}

// maxConns is the largest number of shoppers' connections of this process. It says so when that is not the usual one.
func maxConns(logger *slog.Logger) int {
	files, known := openFiles()
	if !known {
		return gateway.DefaultMaxConns
	}
	n := roomForConns(files)
	if n < gateway.DefaultMaxConns {
		logger.Warn("the limit of open files (ulimit -n) leaves room for fewer connections than usual", "connections", n, "usual", gateway.DefaultMaxConns, "files", files)
	}
	return n
}
