package limiter

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
)

// DefaultHeader is the header that nearly every proxy appends the address of its
// client to.
const DefaultHeader = "X-Forwarded-For"

const (
	// maxHops bounds the entries that are looked at, so that a header of thousands
	// of entries costs what a real chain of proxies costs. maxEntry bounds an entry
	// in bytes: a quoted, bracketed IPv6 address with zone and port has room.
	maxHops  = 32
	maxEntry = 96

	// ipv6Line is what an IPv6 customer gets at least: all of it is one line.
	ipv6Line = 64
)

// ResolverConfig says who may name the client, and how.
type ResolverConfig struct {
	// Trusted are the networks of the proxies (CDN, load balancer) in front. The
	// header of any other peer is not read. Empty: the peer is the client.
	Trusted []netip.Prefix
	// Header names the client. Default X-Forwarded-For, a list to which every proxy
	// appends. Any other (CF-Connecting-IP, X-Real-IP, …) must hold one address,
	// which the proxy sets itself and does not pass on from its client. "Forwarded"
	// is refused: its quoted syntax is not read here.
	Header string
}

// WithDefaults fills in the header.
func (c ResolverConfig) WithDefaults() ResolverConfig {
	if c.Header == "" {
		c.Header = DefaultHeader
	}
	return c
}

// Validate says what is wrong with the configuration, defaults filled in.
func (c ResolverConfig) Validate() error {
	if strings.EqualFold(c.Header, "Forwarded") {
		return fmt.Errorf("client address header Forwarded is not supported; let the proxy send %s", DefaultHeader)
	}
	if c.Header == "" || strings.Trim(c.Header, fieldNameChars) != "" {
		return fmt.Errorf("client address header %.60q is not a header name", c.Header)
	}
	for _, p := range c.Trusted {
		if _, err := normalPrefix(p); err != nil {
			return fmt.Errorf("trusted network %v: %w", p, err)
		}
	}
	return nil
}

// fieldNameChars are the characters of a field name (RFC 9110, 5.6.2).
const fieldNameChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Resolver finds the client of a request. Immutable, safe for concurrent use.
type Resolver struct {
	trusted []netip.Prefix
	header  string
	list    bool
}

// NewResolver makes a resolver.
func NewResolver(cfg ResolverConfig) (*Resolver, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make client address resolver: %w", err)
	}
	r := &Resolver{header: cfg.Header, list: strings.EqualFold(cfg.Header, DefaultHeader)}
	for _, p := range cfg.Trusted {
		p, _ = normalPrefix(p) // Validate has seen the error
		r.trusted = append(r.trusted, p)
	}
	return r, nil
}

// Header is the name of the header whose lines Resolve wants.
func (r *Resolver) Header() string { return r.header }

// Trusts tells whether addr is one of the proxies, so that its header counts.
func (r *Resolver) Trusts(addr netip.Addr) bool {
	addr = Normal(addr)
	for _, p := range r.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Resolve names the client: peer, the other end of the connection, or whom the
// header names if peer is trusted. lines are the values of all lines of the header
// in the order in which they came, and of the header section alone: a client can
// send a trailer of the same name through a proxy that looks at headers only. The
// result is normal (see [Normal]). Resolve keeps nothing of lines.
//
// A list is read from the right, across lines, as one list. Each proxy appended
// the address it was called from; so the last entry is as true as the peer is, and
// the one before it as true as the last, if that is trusted too. The first address
// that is no proxy's is the client, and what stands left of it is only what the
// client says. Where the walk ends early (an entry that is no address, more than 32
// entries, the beginning of the list), the last proxy reached stands for its client.
// Empty entries mean nothing, as in any list of HTTP.
//
// A header for one address counts if it is there once, with one address in it.
// With several lines or a list nobody can tell which of them the proxy wrote; then
// the peer stands for the client, so that sending more of them never gives anybody
// an address of his choice.
func (r *Resolver) Resolve(peer netip.Addr, lines [][]byte) netip.Addr {
	peer = Normal(peer)
	if !r.Trusts(peer) {
		return peer
	}
	if !r.list {
		if len(lines) == 1 {
			if addr, ok := parseEntry(lines[0]); ok {
				return addr
			}
		}
		return peer
	}
	client := peer
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			if hops++; hops > maxHops {
				return client
			}
			var entry []byte
			if entry, rest, more = lastEntry(rest); len(entry) == 0 {
				continue
			}
			addr, ok := parseEntry(entry)
			if !ok {
				return client
			}
			client = addr
			if !r.Trusts(addr) {
				return client
			}
		}
	}
	return client
}

// lastEntry cuts the last entry off a comma list; more tells whether there was a
// comma. Every byte of a line is looked at once in a walk, however it is cut.
func lastEntry(list []byte) (entry, rest []byte, more bool) {
	i := bytes.LastIndexByte(list, ',')
	if i < 0 {
		return trimSpace(list), nil, false
	}
	return trimSpace(list[i+1:]), list[:i], true
}

// parseEntry reads an address as proxies write it: alone, with a port, in brackets,
// in quotes. Every form that means no one address (unknown, _hidden, 010.0.0.1) is
// not ok.
func parseEntry(entry []byte) (netip.Addr, bool) {
	entry = trimSpace(entry)
	if len(entry) > maxEntry {
		return netip.Addr{}, false
	}
	if n := len(entry); n >= 2 && entry[0] == '"' && entry[n-1] == '"' {
		entry = trimSpace(entry[1 : n-1])
	}
	host := string(entry)
	if strings.HasPrefix(host, "[") {
		inside, port, ok := strings.Cut(host[1:], "]")
		if !ok || !strings.Contains(inside, ":") || port != "" && !isPort(port) {
			return netip.Addr{}, false
		}
		host = inside
	} else if i := strings.IndexByte(host, ':'); i >= 0 && i == strings.LastIndexByte(host, ':') {
		// One colon only: not an IPv6 address, so what follows is a port.
		if !isPort(host[i:]) {
			return netip.Addr{}, false
		}
		host = host[:i]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return Normal(addr), true
}

// isPort tells whether s is a colon and a number of up to five digits.
func isPort(s string) bool {
	return len(s) >= 2 && len(s) <= 6 && s[0] == ':' && strings.Trim(s[1:], "0123456789") == ""
}

// trimSpace takes off the white space of a header value, which is space and tab.
func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t") }

// Normal gives the one spelling of an address: IPv4 where it is IPv4-mapped, and
// no zone.
func Normal(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// BucketKey is the part of a client's address that is one line: all of an IPv4
// address, the /64 of an IPv6 one, since a customer has that many addresses to step
// through. The invalid address (a Unix socket) is a key of its own.
func BucketKey(addr netip.Addr) netip.Addr {
	addr = Normal(addr)
	if !addr.Is6() {
		return addr
	}
	prefix, err := addr.Prefix(ipv6Line)
	if err != nil { // not for a valid address; and if so, whole is narrower than shared
		return addr
	}
	return prefix.Addr()
}
