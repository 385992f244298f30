package config

import (
	"errors"
	"fmt"
	"net/url"
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
