package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

const (
	// MinHMACKey is the least length of an HS256 key in bytes: a shorter one than the hash can be guessed more easily than the hash
	// (RFC 7518, 3.2).
	MinHMACKey = 32
	// maxText bounds names and secrets, in bytes. Nothing real comes near it.
	maxText = 4096
)

// parseText takes any text without control characters; an empty one stands for nothing.
func parseText(text string, _ *kong.Tag) (any, error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	return text, nil
}

func parseSecret(text string, _ *kong.Tag) (any, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("must be at most %d bytes long", maxText)
	}
	return text, nil
}

func checkText(text string) error {
	if len(text) > maxText || !utf8.ValidString(text) {
		return fmt.Errorf("must be UTF-8 of at most %d bytes", maxText)
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return errors.New("must not hold a control character, such as a line break")
		}
	}
	return nil
}

// parseHMACKey takes any bytes, but enough of them; none at all stands for no key.
func parseHMACKey(text string, _ *kong.Tag) (any, error) {
	switch {
	case text != "" && len(text) < MinHMACKey:
		return nil, fmt.Errorf("must be at least %d bytes long; it has %d", MinHMACKey, len(text))
	case len(text) > maxText:
		return nil, fmt.Errorf("must be at most %d bytes long", maxText)
	}
	return text, nil
}

// parseToken takes what fits behind "Bearer " in a header.
func parseToken(text string, _ *kong.Tag) (any, error) {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return nil, errors.New("must be visible ASCII without spaces, as it travels in a header")
		}
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("must be at most %d bytes long", maxText)
	}
	return text, nil
}

func parseHTTPURL(text string, _ *kong.Tag) (any, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must be a URL such as http://127.0.0.1:9090, with http or https and without user, query or fragment")
	}
	return text, nil
}

// parseKeysURL reads where a key set is. It may have a query, by which some providers tell their customers apart.
func parseKeysURL(text string, _ *kong.Tag) (any, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("must be a URL such as https://id.example/.well-known/jwks.json, with http or https and without user or fragment")
	}
	return text, nil
}

// parseOrigins reads a comma list of origins, as browsers write them in the header Origin: they are compared letter by letter.
func parseOrigins(text string, _ *kong.Tag) (any, error) {
	origins := strings.Split(text, ",")
	for i, origin := range origins {
		origins[i] = strings.TrimSpace(origin)
		if origins[i] == "*" && len(origins) == 1 {
			break
		}
		if !isOrigin(origins[i]) {
			return nil, fmt.Errorf("must be a comma list of origins as browsers send them, such as https://shop.example or http://localhost:3000, "+
				"in lower case, without path and without the port that the scheme implies; or * alone: entry %d is none", i+1)
		}
	}
	return origins, nil
}

// isOrigin reports whether text is the serialization of an origin (RFC 6454, section 6.2).
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || text != u.Scheme+"://"+u.Host || text != strings.ToLower(text) {
		return false
	}
	if strings.ContainsAny(u.Host, "*?") {
		return false // no patterns: browsers send none
	}
	port := u.Port()
	return !strings.HasSuffix(u.Host, ":") && (u.Scheme != "http" || port != "80") && (u.Scheme != "https" || port != "443") && checkText(text) == nil
}
