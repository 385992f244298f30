package token

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// claimCases are payloads, and why each is refused; "" for those that are accepted,
// with the subject. The verifier wants the issuer "us" and the audience "ours" and
// gives 30 s of leeway.
func claimCases() []claimCase {
	exp := fmt.Sprintf(`"exp":%d`, at(time.Hour))
	const parties = `"iss":"us","aud":"ours"`
	base := exp + "," + parties
	with := func(member string) string { return "{" + base + `,"sub":"u1",` + member + "}" }
	withExp := func(value string) string { return `{` + parties + `,"sub":"u1","exp":` + value + "}" }
	withAud := func(value string) string { return `{` + exp + `,"iss":"us","sub":"u1","aud":` + value + "}" }
	withIss := func(value string) string { return `{` + exp + `,"aud":"ours","sub":"u1","iss":` + value + "}" }
	withSub := func(value string) string { return "{" + base + `,"sub":` + value + "}" }
	in := func(d time.Duration) string { return fmt.Sprint(at(d)) }
	accept := func(name, payload string) claimCase { return claimCase{name: name, payload: payload, sub: "u1"} }
	refuse := func(name, payload string, r Reason) claimCase {
		return claimCase{name: name, payload: payload, reason: r}
	}
	subject := func(name, value, sub string) claimCase {
		return claimCase{name: name, payload: withSub(value), sub: sub}
	}

	return []claimCase{
		accept("plain", withSub(`"u1"`)),
		accept("other claims", with(`"name":"x","roles":["a",{"sub":"u2","exp":0}],"sub2":null`)),
		accept("white space", " \n{\t"+strings.ReplaceAll(base, ",", " ,\r\n ")+` , "sub" : "u1" } `),

		refuse("no exp", `{`+parties+`,"sub":"u1"}`, ReasonClaims),
		refuse("exp empty text", withExp(`""`), ReasonClaims),
		refuse("exp text", withExp(`"`+in(time.Hour)+`"`), ReasonClaims),
		refuse("exp 0", withExp("0"), ReasonClaims),
		refuse("exp 0.0", withExp("0.0"), ReasonClaims),
		refuse("exp -1", withExp("-1"), ReasonClaims),
		refuse("exp null", withExp("null"), ReasonClaims),
		refuse("exp true", withExp("true"), ReasonClaims),
		refuse("exp list", withExp("["+in(time.Hour)+"]"), ReasonClaims),
		refuse("exp object", withExp(`{"exp":`+in(time.Hour)+"}"), ReasonClaims),
		refuse("exp in milliseconds", withExp(in(time.Hour)+"000"), ReasonClaims),
		refuse("exp beyond any float", withExp("1e999"), ReasonClaims),
		refuse("exp beyond any time", withExp("1e300"), ReasonClaims),
		refuse("exp past by leeway and a second", withExp(in(-31*time.Second)), ReasonExpired),
		refuse("exp past by leeway", withExp(in(-30*time.Second)), ReasonExpired),
		refuse("exp long past", withExp("1"), ReasonExpired),
		accept("exp past by less than the leeway", withExp(in(-29*time.Second))),
		accept("exp with a fraction", withExp(in(-30*time.Second)+".5")),
		accept("exp with an exponent", withExp("2.5e9")),

		refuse("nbf five minutes ahead", with(`"nbf":`+in(5*time.Minute)), ReasonNotYet),
		refuse("nbf ahead by leeway and a second", with(`"nbf":`+in(31*time.Second)), ReasonNotYet),
		refuse("nbf text", with(`"nbf":"`+in(0)+`"`), ReasonClaims),
		refuse("nbf null", with(`"nbf":null`), ReasonClaims),
		refuse("nbf negative", with(`"nbf":-5`), ReasonClaims),
		accept("nbf ahead by less than the leeway", with(`"nbf":`+in(20*time.Second))),
		accept("nbf 0", with(`"nbf":0`)),

		refuse("iat ahead by leeway and a second", with(`"iat":`+in(31*time.Second)), ReasonNotYet),
		refuse("iat text", with(`"iat":""`), ReasonClaims),
		refuse("iat object", with(`"iat":{}`), ReasonClaims),
		accept("iat ahead by less than the leeway", with(`"iat":`+in(20*time.Second))),
		accept("iat long ago", with(`"iat":1`)),

		refuse("aud absent", `{`+exp+`,"iss":"us","sub":"u1"}`, ReasonClaims),
		refuse("aud other", withAud(`"other"`), ReasonClaims),
		refuse("aud empty", withAud(`""`), ReasonClaims),
		refuse("aud no list entries", withAud(`[]`), ReasonClaims),
		refuse("aud 7", withAud("7"), ReasonClaims),
		refuse("aud null", withAud("null"), ReasonClaims),
		refuse("aud object", withAud(`{"ours":"ours"}`), ReasonClaims),
		refuse("aud list of another", withAud(`["other"]`), ReasonClaims),
		refuse("aud list of an empty one", withAud(`[""]`), ReasonClaims),
		refuse("aud list with a number", withAud(`["ours",7]`), ReasonClaims),
		refuse("aud list with null", withAud(`[null,"ours"]`), ReasonClaims),
		refuse("aud list in a list", withAud(`[["ours"]]`), ReasonClaims),
		refuse("aud other case", withAud(`"OURS"`), ReasonClaims),
		refuse("aud longer", withAud(`"ours2"`), ReasonClaims),
		accept("aud list", withAud(`["ours"]`)),
		accept("aud list with ours", withAud(`["other","ours"]`)),
		accept("aud with an escape", withAud(`"our\u0073"`)),

		refuse("iss absent", `{`+exp+`,"aud":"ours","sub":"u1"}`, ReasonClaims),
		refuse("iss other", withIss(`"them"`), ReasonClaims),
		refuse("iss list", withIss(`["us"]`), ReasonClaims),
		refuse("iss empty", withIss(`""`), ReasonClaims),
		refuse("iss 7", withIss("7"), ReasonClaims),
		accept("iss with an escape", withIss(`"\u0075s"`)),

		refuse("sub absent", "{"+base+"}", ReasonClaims),
		refuse("sub empty", withSub(`""`), ReasonClaims),
		refuse("sub 5", withSub("5"), ReasonClaims),
		refuse("sub null", withSub("null"), ReasonClaims),
		refuse("sub true", withSub("true"), ReasonClaims),
		refuse("sub list", withSub(`["u1"]`), ReasonClaims),
		refuse("sub object", withSub(`{"sub":"u1"}`), ReasonClaims),
		refuse("sub of 65 bytes", withSub(`"`+strings.Repeat("a", 65)+`"`), ReasonClaims),
		refuse("sub of 64 characters in 128 bytes", withSub(`"`+strings.Repeat("ä", 64)+`"`), ReasonClaims),
		refuse("sub with NUL", withSub(`"u\u0000"`), ReasonClaims),
		refuse("sub with a line break", withSub(`"u\n"`), ReasonClaims),
		refuse("sub with DEL", withSub(`"u`+"\x7f"+`"`), ReasonClaims),
		refuse("sub with C1", withSub(`"u`+"\u0085"+`"`), ReasonClaims),
		refuse("sub with C1 escaped", withSub(`"u\u009f"`), ReasonClaims),
		refuse("sub not UTF-8", withSub("\"u\xff\""), ReasonClaims),
		refuse("sub not UTF-8, with an escape", withSub("\"\\u0075\xff\""), ReasonClaims),
		refuse("sub half a surrogate pair", withSub(`"u\ud800"`), ReasonClaims),
		refuse("sub surrogates the wrong way round", withSub(`"u\udc00\ud800"`), ReasonClaims),
		refuse("sub with a replacement character", withSub("\"u\ufffd\""), ReasonClaims),
		refuse("sub with a raw control character", withSub("\"u\x01\""), ReasonMalformed),
		subject("sub of 64 bytes", `"`+strings.Repeat("a", 64)+`"`, strings.Repeat("a", 64)),
		subject("sub of 64 bytes, escaped", `"`+strings.Repeat(`\u0061`, 64)+`"`, strings.Repeat("a", 64)),
		subject("sub one byte", `"7"`, "7"),
		subject("sub with space and separators", `" a:b|c "`, " a:b|c "),
		subject("sub with quotes and backslashes", `"a\"b\\c\/"`, `a"b\c/`),
		subject("sub beyond ASCII", `"söb✓"`, "söb✓"),
		subject("sub with a surrogate pair", `"\ud83d\ude00"`, "😀"),
		subject("sub with a no-break space", `"a\u00a0b"`, "a\u00a0b"),

		refuse("sub twice", with(`"sub":"u2"`), ReasonMalformed),
		refuse("sub twice the same", with(`"sub":"u1"`), ReasonMalformed),
		refuse("sub twice, one escaped", with(`"s\u0075b":"u2"`), ReasonMalformed),
		refuse("sub twice, one null", with(`"sub":null`), ReasonMalformed),
		refuse("exp twice", with(exp), ReasonMalformed),
		refuse("aud twice", with(`"aud":"ours"`), ReasonMalformed),
		refuse("iss twice", with(`"iss":"us"`), ReasonMalformed),
		refuse("nbf twice", with(`"nbf":1,"nbf":2`), ReasonMalformed),
		refuse("iat twice", with(`"iat":1,"iat":2`), ReasonMalformed),
		accept("SUB as well", with(`"SUB":"u2","Sub":7,"EXP":0,"Aud":[],"ISS":"them"`)),
		accept("ſub as well", with(`"ſub":"u2"`)), // folds to "sub" in Unicode
		refuse("SUB alone", "{"+base+`,"SUB":"u1"}`, ReasonClaims),
		refuse("EXP alone", `{`+parties+`,"sub":"u1","EXP":`+in(time.Hour)+"}", ReasonClaims),
		{name: "sub escaped in its name", payload: "{" + base + `,"\u0073ub":"u1"}`, sub: "u1"},

		refuse("null", "null", ReasonMalformed),
		refuse("empty object", "{}", ReasonClaims),
		refuse("list", "[{"+base+`,"sub":"u1"}]`, ReasonMalformed),
		refuse("text", `"{}"`, ReasonMalformed),
		refuse("number", "7", ReasonMalformed),
		refuse("two objects", withSub(`"u1"`)+"{}", ReasonMalformed),
		refuse("cut off", "{"+base+`,"sub":"u1"`, ReasonMalformed),
		refuse("trailing comma", "{"+base+`,"sub":"u1",}`, ReasonMalformed),
		refuse("comma first", "{,"+base+`,"sub":"u1"}`, ReasonMalformed),
		refuse("single quotes", "{"+base+`,'sub':'u1'}`, ReasonMalformed),
		refuse("NUL behind", withSub(`"u1"`)+"\x00", ReasonMalformed),
		refuse("deep", with(`"x":`+strings.Repeat("[", 2000)), ReasonMalformed),
	}
}

type claimCase struct {
	name, payload string
	reason        Reason // "" for those that are accepted
	sub           string
}

func TestVerifyClaims(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			v := newVerifier(t, Config{
				Keys: keysFor(t, algorithm), Issuer: "us", Audience: "ours", Leeway: DefaultLeeway,
			})
			for _, c := range claimCases() {
				raw := signedBy(t, algorithm, c.payload)
				claims, err := v.Verify(raw)
				if ReasonOf(err) != c.reason || (err == nil) != (c.reason == "") {
					t.Errorf("%s: %v (%s), want %q", c.name, err, ReasonOf(err), c.reason)
				}
				if claims.Subject != c.sub {
					t.Errorf("%s: subject %q, want %q", c.name, claims.Subject, c.sub)
				}
				if err == nil {
					if sub, ok := PeekSubject(raw, nil); !ok || string(sub) != claims.Subject {
						t.Errorf("%s: PeekSubject gives %q, %v; Verify %q", c.name, sub, ok, claims.Subject)
					}
				}
			}
		})
	}
}

// Without an issuer and an audience configured, what a token says of them is nothing.
func TestVerifyWithoutParties(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, HS256)})
	for _, member := range []string{"", `,"aud":"other"`, `,"aud":[]`, `,"aud":7,"iss":null`, `,"iss":["x"]`} {
		payload := fmt.Sprintf(`{"exp":%d,"sub":"u1"%s}`, at(time.Hour), member)
		if claims, err := v.Verify(signedBy(t, HS256, payload)); err != nil || claims.Subject != "u1" {
			t.Errorf("%s: %+v, %v", payload, claims, err)
		}
	}
	// And without a leeway there is none.
	for d, ok := range map[time.Duration]bool{time.Second: true, 0: false, -time.Second: false} {
		_, err := v.Verify(signedBy(t, HS256, fmt.Sprintf(`{"exp":%d,"sub":"u1"}`, at(d))))
		if (err == nil) != ok {
			t.Errorf("exp %v from now: %v", d, err)
		}
	}
}
