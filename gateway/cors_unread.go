package gateway

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

// What pages are told of a request that could not be read. Where it broke off decides what is known of it:
//
//   - In a body that is longer than is read (413): the header is there, and its Origin with it.
//   - In a header that is longer than the buffer (431): fasthttp has dropped what it had parsed and given the buffer to somebody else. So
//     the connection looks for the Origin when it sees the buffer fill up. It is not found if it comes behind so much else that it did not
//     get into the buffer.
//   - In a header or a body that is malformed or incomplete (400, 408): what was parsed is dropped, and only fasthttp knows where in the
//     buffer this request began, behind others that came with it; to take the Origin of one of those would be worse than none. Browsers
//     send nothing malformed, and a purchase that arrives in part, which is some hundred bytes, means a connection that has broken down.
//   - Before any of it (no room for the connection): there is nothing to read.
//
// Where the Origin is not known, a grant needs none if only one is possible: a browser shows the answer to pages of the origin that is
// named and to no others, whoever has asked. With several origins a page sees such an answer as a failure of the network.

// permission is what an answer says about pages.
type permission struct {
	called bool   // by pages; otherwise nothing is said
	origin []byte // whose pages may read it; nil: nobody's
}

// shareUnread does for an answer to a request that could not be read what share does for others. full is what was found in a header that
// has filled up the buffer, or nil.
func (c *cors) shareUnread(ctx *fasthttp.RequestCtx, full *permission) {
	if c == nil {
		return
	}
	p := permission{called: true, origin: c.alone}
	switch header := &ctx.Request.Header; {
	case len(header.Host()) > 0: // the header was read: every request must have one, and it goes with the rest of what is dropped
		p = c.permission(header.RequestURI(), header.PeekAll(fasthttp.HeaderOrigin))
	case full != nil:
		p = *full
	}
	if p.called {
		c.grant(ctx, p.origin)
	}
}

func (c *cors) permission(target []byte, origins [][]byte) permission {
	path, _ := splitTarget(target)
	r, _ := match(path)
	return permission{browsersCall(r), c.allowed(origins)}
}

// ofBeginning is the permission for a request of which raw is the beginning. It keeps nothing of raw.
func (c *cors) ofBeginning(raw []byte) permission {
	line, rest, _ := bytes.Cut(bytes.TrimLeft(raw, "\r\n"), []byte{'\n'})
	_, target, _ := bytes.Cut(line, []byte{' '})
	target, _, _ = bytes.Cut(target, []byte{' '})
	var origins [][]byte
	for len(origins) < 2 { // two are as bad as more
		// What stands behind the last line end may be half a line.
		var whole bool
		if line, rest, whole = bytes.Cut(rest, []byte{'\n'}); !whole {
			break
		}
		if name, value, _ := bytes.Cut(line, []byte{':'}); bytes.EqualFold(name, valueVary) {
			origins = append(origins, bytes.Trim(value, " \t\r"))
		}
	}
	if len(origins) == 0 {
		p := c.permission(target, nil)
		p.origin = c.alone // it may come behind what is there
		return p
	}
	return c.permission(target, origins)
}

// beforeReading is what can be said in an answer that is given before anything of the request was read, as whole header lines.
func (c *cors) beforeReading() string {
	if c == nil {
		return ""
	}
	lines := "Vary: Origin\r\n"
	if c.alone != nil {
		lines += "Access-Control-Allow-Origin: " + string(c.alone) + "\r\nAccess-Control-Expose-Headers: " + string(valueExpose) + "\r\n"
	}
	return lines
}
