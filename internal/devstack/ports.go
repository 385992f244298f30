package devstack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// portAttempts bounds how often a start is repeated because somebody else took a chosen
// port before the server did.
const portAttempts = 5

// errPortTaken marks a start that failed for a port in use.
var errPortTaken = errors.New("port taken")

// onFreePorts calls start with n free ports, and again with others as long as it
// reports errPortTaken.
func onFreePorts(n int, start func(ports []int) error) error {
	for attempt := 1; ; attempt++ {
		ports, err := freePorts(n)
		if err != nil {
			return err
		}
		err = start(ports)
		if attempt == portAttempts || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

// FreePort chooses a port of 127.0.0.1 on which nobody listens, for a program that has to be
// told one. Somebody else may take it before the program does, which is unlikely.
func FreePort() (int, error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// freePorts chooses n different ports of 127.0.0.1 on which nobody listens. All of them
// are held until the last one is chosen, so none is given out twice.
//
// They lie below the range from which the kernel serves outgoing connections. A server
// that is killed and started again keeps its port; were that an ephemeral one, any
// connection of anybody could be sitting on it by then, a client that tries to
// reconnect to this very port among them.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for len(ports) < n {
		l, err := listenBelowEphemeral()
		if err != nil {
			return nil, fmt.Errorf("choose a free port: %w", err)
		}
		defer l.Close() //nolint:errcheck // nothing was accepted
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// listenBelowEphemeral listens on a random port below the ephemeral range, or on any
// where that leaves no room or no luck.
func listenBelowEphemeral() (net.Listener, error) {
	const first, tries = 20000, 100
	if span := ephemeralFloor() - first; span > 1000 {
		for range tries {
			l, err := listenLoopback(first + rand.IntN(span)) //nolint:gosec // any port will do, it is no secret
			if err == nil {
				return l, nil
			}
		}
	}
	return listenLoopback(0)
}

func listenLoopback(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// ephemeralFloor is the lowest port that the kernel gives to outgoing connections, or 0
// where it does not say.
func ephemeralFloor() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return 0
	}
	return low
}
