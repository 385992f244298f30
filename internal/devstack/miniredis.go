package devstack

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// MiniRedis is a Redis inside this process. It keeps everything in memory.
type MiniRedis struct {
	server *miniredis.Miniredis
	addr   string
}

// StartMiniRedis starts an in-process Redis whose keys expire by the clock.
func StartMiniRedis() (*MiniRedis, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("start in-process Redis: %w", err)
	}
	return &MiniRedis{server: m, addr: m.Addr()}, nil
}

// Addr is its host and port. They survive Restart.
func (r *MiniRedis) Addr() string { return r.addr }

// URL is its address as FLASHGATE_REDIS_URL takes it.
func (r *MiniRedis) URL() string { return "redis://" + r.addr }

// Server is the engine itself, for tests that set the clock or make commands fail.
func (r *MiniRedis) Server() *miniredis.Miniredis { return r.server }

// Stop closes its port and connections. It may be called again.
func (r *MiniRedis) Stop() { r.server.Close() }

// Restart opens a stopped server again, on the same port and with all its keys.
func (r *MiniRedis) Restart() error {
	if err := r.server.Restart(); err != nil {
		return fmt.Errorf("restart in-process Redis: %w", err)
	}
	return nil
}
