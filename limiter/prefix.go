package limiter

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ParsePrefixes reads a comma list of networks ("10.0.0.0/8, 2001:db8::/32"); a
// bare address is the network of that one address. An empty text is no networks.
// Errors name the entry.
func ParsePrefixes(text string) ([]netip.Prefix, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	entries := strings.Split(text, ",")
	prefixes := make([]netip.Prefix, 0, len(entries))
	for i, entry := range entries {
		p, err := parsePrefix(strings.TrimSpace(entry))
		if err != nil {
			return nil, fmt.Errorf("parse networks: entry %d, %.60q: %w", i+1, strings.TrimSpace(entry), err)
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

func parsePrefix(entry string) (netip.Prefix, error) {
	if entry == "" {
		return netip.Prefix{}, errors.New("it is empty")
	}
	if !strings.Contains(entry, "/") {
		addr, err := netip.ParseAddr(entry)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, errors.New("neither an IP address nor a network like 10.0.0.0/8")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(entry)
	if err != nil {
		return netip.Prefix{}, errors.New("not a network like 10.0.0.0/8")
	}
	return normalPrefix(p)
}

// normalPrefix turns a prefix of IPv4-mapped addresses into the IPv4 one, as every
// address is unmapped before it is compared and would never be inside the former.
func normalPrefix(p netip.Prefix) (netip.Prefix, error) {
	const mappedBits = 96 // ::ffff:0:0/96 holds all of IPv4
	if !p.IsValid() {
		return p, errors.New("not a network")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < mappedBits {
			return p, errors.New("it holds more than the IPv4-mapped addresses; write the IPv4 and the IPv6 network apart")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
	}
	if p != p.Masked() {
		// Either the length or the address is a slip, and trusting too much is not
		// a guess to make.
		return p, fmt.Errorf("its address has bits behind the /%d; write %v for the network, or %v for the one address",
			p.Bits(), p.Masked(), p.Addr())
	}
	return p, nil
}
