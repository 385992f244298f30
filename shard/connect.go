package shard

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// ConnectConfig says how to reach Redis.
type ConnectConfig struct {
	// URL as rueidis.ParseURL reads it: redis:// or rediss:// with user, password and database; `addr=` for further nodes,
	// `master_set=` for Sentinel. A cluster is recognised.
	//
	// With `master_set=` the addresses are those of Sentinels, which are spoken to as the servers are: with TLS or without, and
	// with the same password, for their default user. A Sentinel that asks for none takes any.
	URL string
	// Roots are what certificates are checked against. Default: the system's, which SSL_CERT_FILE of the environment replaces.
	Roots *x509.CertPool
	// InProcess is for miniredis: it says that it knows CLUSTER and RESP3, but not enough of either.
	InProcess bool
	// ClientName is shown by CLIENT LIST.
	ClientName string
	// DialTimeout bounds connecting, handshake included. Default 2s, or `dial_timeout=` of the URL.
	DialTimeout time.Duration
	// ReplyTimeout is how long a server may be silent, after a second without traffic, until its connection is given up.
	// It has to be longer than the longest script: a load of some 100,000 buyers. Default 10s, with Sentinels 4s, or
	// `write_timeout=` of the URL.
	ReplyTimeout time.Duration
}

const (
	// clusterRefresh is how often a cluster is asked who serves what. Otherwise the client asks when a server says MOVED or a
	// connection breaks, and a master that hangs, or whose machine is gone, does neither: clients found its replica only after
	// 13s, and do after 4 to 6 now.
	clusterRefresh = 2 * time.Second
	// sentinelRefresh is how often the Sentinels are asked who the master is, and the master whether he is.
	sentinelRefresh = 5 * time.Second
	// sentinelSilence is the default ReplyTimeout with Sentinels. A master that hangs, or whose machine is gone, is often asked
	// that question before the Sentinels have replaced him. Until it is answered, or its connection given up, the client does
	// not act on what they tell it: with 10s, half of the clients found a master that was named after 3.4s only after 11.
	sentinelSilence = 4 * time.Second
)

// errURL says no more: the library's own error repeats the URL, and with it the password.
var errURL = errors.New("connect to Redis: the URL cannot be read")

// Connect opens a client for a Stock. The caller closes it after the Stock.
//
// The client repeats nothing by itself. rueidis repeats read-only commands alone, and an EVALSHA is none to it; but what
// must not happen should not hang on what a library takes for read-only. It follows MOVED and ASK, which say that nothing
// ran.
func Connect(cfg ConnectConfig) (rueidis.Client, error) {
	opt, err := rueidis.ParseURL(cfg.URL)
	if err != nil {
		return nil, errURL
	}
	opt.DisableRetry = true
	opt.DisableCache = true // nothing is read twice, and miniredis has no tracking
	// Without it a lone call runs in a mode where the end of its context closes the connection under the feet of calls
	// that joined in the meantime, which then look as if they might have run.
	opt.AlwaysPipelining = true
	// Connections have no lifetime: rueidis repeats calls that meet the end of one.
	opt.ConnLifetime = 0
	opt.ClientName = cmp.Or(cfg.ClientName, opt.ClientName)
	opt.Dialer.Timeout = cmp.Or(cfg.DialTimeout, opt.Dialer.Timeout, 2*time.Second)
	silence := 10 * time.Second
	if opt.Sentinel.MasterSet != "" {
		silence = sentinelSilence
	}
	opt.ConnWriteTimeout = cmp.Or(cfg.ReplyTimeout, opt.ConnWriteTimeout, silence)
	if opt.TLSConfig != nil {
		opt.TLSConfig.RootCAs = cfg.Roots
		dialTLS(&opt)
	}
	opt.ClusterOption.ShardsRefreshInterval = clusterRefresh
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.Dialer = net.Dialer{Timeout: opt.Dialer.Timeout, KeepAlive: rueidis.DefaultTCPKeepAlive}
		opt.Sentinel.TLSConfig = opt.TLSConfig
		opt.Sentinel.Password = opt.Password
		opt.Sentinel.ClientName = opt.ClientName
		// A demoted master stays up and answers READONLY; an event that was missed would bind the client to it for ever.
		opt.Sentinel.TopologyRefreshInterval = sentinelRefresh
	}
	if cfg.InProcess {
		opt.ForceSingleClient = true
		opt.AlwaysRESP2 = true
	}
	client, err := rueidis.NewClient(opt)
	if err != nil {
		if client != nil {
			client.Close()
		}
		if opt.TLSConfig == nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
			err = fmt.Errorf("%w; a server that wants TLS hangs up like this, and is reached by rediss://", err)
		}
		if opt.Sentinel.MasterSet != "" && strings.Contains(strings.ToLower(err.Error()), "unknown command") {
			err = fmt.Errorf("%w; the address is of no Sentinel, as master_set= of the URL says: leave that out, or name the Sentinels", err)
		}
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	return client, nil
}
