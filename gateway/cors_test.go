package gateway

import (
	"slices"
	"strings"
	"testing"
)

var corsHeaders = []string{"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Max-Age", "Access-Control-Allow-Credentials", "Vary"}

// corsOf returns the headers of an answer that are about origins, each as a line.
func corsOf(head string) []string {
	var lines []string
	for _, line := range strings.Split(head, "\r\n") {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains(corsHeaders, name) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Every answer of the public API says who may read it, and none of the webhook's; an origin that is not listed, or is spelled otherwise, gets what a
// request without one gets.
func TestCORS(t *testing.T) {
	listed := []string{"https://shop.example", "http://localhost:3000", "https://shop.example:8443"}
	vary := "Vary: Origin"
	grant := func(origin string) []string {
		return []string{vary, "Access-Control-Allow-Origin: " + origin, "Access-Control-Expose-Headers: Location, Retry-After"}
	}
	for name, c := range map[string]struct {
		configured []string
		headers    []string
		want       []string
	}{
		"off":                        {nil, []string{"Origin: https://shop.example"}, nil},
		"off, no origin":             {nil, nil, nil},
		"listed":                     {listed, []string{"Origin: https://shop.example"}, grant("https://shop.example")},
		"listed, another":            {listed, []string{"Origin: http://localhost:3000"}, grant("http://localhost:3000")},
		"listed, with a port":        {listed, []string{"Origin: https://shop.example:8443"}, grant("https://shop.example:8443")},
		"no origin":                  {listed, nil, []string{vary}},
		"empty":                      {listed, []string{"Origin:"}, []string{vary}},
		"not listed":                 {listed, []string{"Origin: https://evil.example"}, []string{vary}},
		"null":                       {listed, []string{"Origin: null"}, []string{vary}},
		"star":                       {listed, []string{"Origin: *"}, []string{vary}},
		"another scheme":             {listed, []string{"Origin: http://shop.example"}, []string{vary}},
		"another port":               {listed, []string{"Origin: https://shop.example:444"}, []string{vary}},
		"the scheme's own port":      {listed, []string{"Origin: https://shop.example:443"}, []string{vary}},
		"a name that begins with it": {listed, []string{"Origin: https://shop.example.evil.example"}, []string{vary}},
		"a name that ends with it":   {listed, []string{"Origin: https://evil-shop.example"}, []string{vary}},
		"a subdomain":                {listed, []string{"Origin: https://www.shop.example"}, []string{vary}},
		"another case":               {listed, []string{"Origin: https://Shop.example"}, []string{vary}},
		"a slash":                    {listed, []string{"Origin: https://shop.example/"}, []string{vary}},
		"two origins in a line":      {listed, []string{"Origin: https://shop.example https://shop.example"}, []string{vary}},
		"two lines":                  {listed, []string{"Origin: https://shop.example", "Origin: https://shop.example"}, []string{vary}},
		"two lines, one listed":      {listed, []string{"Origin: https://shop.example", "Origin: https://evil.example"}, []string{vary}},
		"any":                        {[]string{"*"}, []string{"Origin: https://evil.example"}, grant("*")},
		"any, null":                  {[]string{"*"}, []string{"Origin: null"}, grant("*")},
		"any, no origin":             {[]string{"*"}, nil, grant("*")},
	} {
		for _, s := range scenes() {
			head, _ := s.play(t, c.configured, c.headers...)
			want := slices.Clone(c.want)
			switch {
			case strings.Contains(s.name, "payment") || s.name == "paid":
				want = nil // no browser calls it
			case strings.HasPrefix(s.name, "preflight of ") && s.status == 204 && len(want) > 1 && len(c.headers) > 0:
				methods := map[string]string{"preflight of a purchase": "POST", "preflight of an item": "GET, HEAD", "preflight of an order": "GET, HEAD, DELETE"}
				want = append(want, "Access-Control-Allow-Methods: "+methods[s.name],
					"Access-Control-Allow-Headers: Authorization, Content-Type, Idempotency-Key, Traceparent", "Access-Control-Max-Age: 600")
			}
			got := corsOf(head)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: got %q, want %q", name, s.name, got, want)
			}
		}
	}
}

func TestOriginsAreChecked(t *testing.T) {
	for _, good := range [][]string{
		nil, {"*"}, {"https://shop.example"}, {"http://localhost:3000", "https://shop.example"}, {"https://192.0.2.1:8443"}, {"http://[::1]:3000"}, {"https://xn--bcher-kva.example"},
		{"capacitor://localhost"}, {"http://shop.example:443"},
	} {
		if _, err := open(Config{CORSOrigins: good}, newWorld(t).ports()); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range [][]string{
		{""}, {"*", "https://shop.example"}, {"https://shop.example", "*"}, {"*", "*"}, {"null"}, {"shop.example"}, {"//shop.example"}, {"https://"}, {"https:shop.example"},
		{"https://shop.example/"}, {"https://shop.example/x"}, {"https://shop.example?x"}, {"https://shop.example#x"}, {"https://u@shop.example"}, {"https://Shop.example"},
		{"HTTPS://shop.example"}, {"https://shop.example:443"}, {"http://shop.example:80"}, {"https://shop.example:"}, {"https://*.shop.example"}, {" https://shop.example"},
		{"https://bücher.example"}, {"https://shop.example,https://b.example"}, {"https://shop.example\r\nX: y"}, {"https://shop.example", ""},
	} {
		if _, err := open(Config{CORSOrigins: bad}, newWorld(t).ports()); err == nil || !strings.Contains(err.Error(), "CORSOrigins") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
