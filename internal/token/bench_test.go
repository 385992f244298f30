package token

import "testing"

func BenchmarkVerify(b *testing.B) {
	for _, algorithm := range algorithms {
		b.Run(algorithm, func(b *testing.B) {
			v := newVerifier(b, Config{
				Keys: keysFor(b, algorithms...), Issuer: "https://id.shop.example/", Audience: "https://api.shop.example",
			})
			raw := ordinaryToken(b, algorithm)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerifyRefused(b *testing.B) {
	v := newVerifier(b, Config{Keys: keysFor(b, RS256)})
	for name, raw := range map[string][]byte{
		"algorithm": ordinaryToken(b, HS256),
		"shape":     []byte("not a token"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(raw); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}

func BenchmarkPeekSubject(b *testing.B) {
	buf := make([]byte, 1024)
	raw := ordinaryToken(b, RS256)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := PeekSubject(raw, buf); !ok {
			b.Fatal("no subject")
		}
	}
}
