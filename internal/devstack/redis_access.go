package devstack

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// RedisAccess says who gets into private Redis servers. The zero value lets everybody in,
// in plain text.
type RedisAccess struct {
	// Authority signs their certificates, with which they speak TLS alone. Nil: plain text.
	Authority *Authority
	// Hosts are the names and addresses in a certificate. Default: those of loopback.
	Hosts []string
	// User and Password are what clients must give; no password lets everybody in. The
	// empty User is the one that Redis calls default; beside another one there is no
	// default user.
	User, Password string
	// Rules say what a User with a name may do, as ACL SETUSER takes them. Default:
	// everything. The empty User may do everything.
	Rules string

	// Whom servers with a password know each other by, and us: a User whose rules are narrow
	// could neither replicate nor form a cluster.
	innerUser, innerPassword string
}

// withInner completes the access of a group of servers.
func (a RedisAccess) withInner() RedisAccess {
	if a.Password != "" {
		a.innerUser, a.innerPassword = "devstack", rand.Text()
	}
	return a
}

// Files of a Redis that is not open to everybody.
const (
	redisConfFile = "redis.conf"
	aclFile       = "users.acl"
)

// equip writes the certificate, the users and a configuration that names them into the
// directory of a server. Passwords are in files of ours alone: command lines are not.
func (a RedisAccess) equip(dir *workDir) error {
	var conf strings.Builder
	if a.Authority != nil {
		if err := a.Authority.equip(dir, nil, a.Hosts...); err != nil {
			return err
		}
		// Redis asks its clients for certificates unless it is told not to.
		fmt.Fprintf(&conf, "tls-cert-file %q\ntls-key-file %q\ntls-ca-cert-file %q\n", dir.file(certificateFile), dir.file(keyFile), dir.file(trustedFile))
		conf.WriteString("tls-auth-clients no\ntls-replication yes\n")
	}
	if a.Password != "" {
		if err := writePrivate(dir, nil, aclFile, []byte(a.users())); err != nil {
			return fmt.Errorf("write the users of Redis: %w", err)
		}
		fmt.Fprintf(&conf, "aclfile %q\nmasteruser %s\nmasterauth %s\n", dir.file(aclFile), a.innerUser, a.innerPassword)
	}
	if err := writePrivate(dir, nil, redisConfFile, []byte(conf.String())); err != nil {
		return fmt.Errorf("write the configuration of Redis: %w", err)
	}
	return nil
}

// users is the file of users. It holds the hashes of passwords, which may so hold blanks.
func (a RedisAccess) users() string {
	const everything = "~* &* +@all"
	line := func(name, password, rules string) string {
		sum := sha256.Sum256([]byte(password))
		return "user " + name + " on #" + hex.EncodeToString(sum[:]) + " " + rules + "\n"
	}
	all := line(a.innerUser, a.innerPassword, everything)
	switch {
	case a.User == "":
		return all + line("default", a.Password, everything)
	case a.Rules == "":
		return all + "user default off\n" + line(a.User, a.Password, everything)
	}
	return all + "user default off\n" + line(a.User, a.Password, a.Rules)
}

// ports are the options for where a server listens.
func (a RedisAccess) ports(port int) []string {
	if a.Authority != nil {
		return []string{"--port", "0", "--tls-port", strconv.Itoa(port)}
	}
	return []string{"--port", strconv.Itoa(port)}
}

// url is where clients find a server, as FLASHGATE_REDIS_URL takes it.
func (a RedisAccess) url(addr string) *url.URL {
	u := &url.URL{Scheme: "redis", Host: addr}
	if a.Authority != nil {
		u.Scheme = "rediss"
	}
	if a.Password != "" {
		u.User = url.UserPassword(a.User, a.Password)
	}
	return u
}

// connect opens our own connection to a server. The caller closes it.
func (a RedisAccess) connect(addr string) (rueidis.Client, error) {
	opt := rueidis.ClientOption{
		InitAddress: []string{addr}, TLSConfig: a.Authority.clientTLS(),
		Username: a.innerUser, Password: a.innerPassword,
		ForceSingleClient: true, DisableCache: true, DisableRetry: true, AlwaysRESP2: true, // a later protocol marks texts
	}
	if a.Authority != nil && len(a.Hosts) > 0 {
		opt.TLSConfig.ServerName = a.Hosts[0]
	}
	return rueidis.NewClient(opt)
}
