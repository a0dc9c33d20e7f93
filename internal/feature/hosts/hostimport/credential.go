package hostimport

import (
	"net/url"
	"regexp"
	"strings"
	"sync"

	"waldo/internal/detect"
	"waldo/internal/detect/words"
	"waldo/internal/model/contract"
)

// removed stands where a credential stood.
const removed = "CREDENTIAL-REMOVED"

var (
	userinfo = lazy(`[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@]*:[^/?#\s@]*@`)
	long     = lazy(`^[A-Za-z0-9+/=_-]{24,}$`)
	harmless = lazy(`(?i)^(true|false|yes|no|on|off|none|null|[0-9]{1,5}|basic|bearer|oauth2?|stdio|https?` +
		`|header)$`)
	counts = lazy(`(?i)limit|max|min|count|ttl|timeout|length|size|expir|budget`)
)

// Credential reports whether the value of something called name is to be treated as a secret. It
// errs to that side: a harmless value in the secret store does no harm.
func Credential(name, value string) bool {
	v := strings.TrimSpace(value)
	if v == "" {
		return false
	}
	if contract.LooksSecret(v) || shaped(v) || userinfo().MatchString(v) || random(v) {
		return true
	}
	if u, err := url.Parse(v); err == nil && u.Host != "" && credentialQuery(u) {
		return true
	}
	if !words.Setting(name) {
		return false
	}
	return !harmless().MatchString(v) && !(counts().MatchString(name) && strings.Trim(v, "0123456789.smhd") == "") && !file(v)
}

// shaped reports whether a value has the form of a vendor's token; the variable's name does not matter.
func shaped(v string) bool {
	return detect.Secret(v) || detect.Begins(v) || strings.Contains(v, "-----BEGIN")
}

// random reports a long run of letters and digits of both kinds, as generated ones are.
func random(v string) bool {
	return long().MatchString(v) && strings.ContainsAny(v, "0123456789") && !strings.HasPrefix(v, "/") &&
		strings.IndexFunc(v, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }) >= 0 &&
		strings.Count(v, "/")+strings.Count(v, "-") < 5
}

// file reports whether v is a file path: it can name a secret but does not contain one.
func file(v string) bool {
	return (strings.HasPrefix(v, "/") || strings.HasPrefix(v, "./") || strings.HasPrefix(v, "~/")) &&
		strings.Count(v, "/") > 1 && !strings.ContainsAny(v, "=+ ")
}

func credentialQuery(u *url.URL) bool {
	for name, values := range u.Query() {
		for _, v := range values {
			if Credential(name, v) {
				return true
			}
		}
	}
	return false
}

// Mask returns an argument without the credential in it, where there is one.
func Mask(before, arg string) string {
	clean, _ := mask(before, arg)
	return clean
}

// mask returns an argument without the credential in it, and whether there is one. The argument
// before it may be the flag that names it.
func mask(before, arg string) (string, bool) {
	if name, value, ok := strings.Cut(arg, "="); ok && !strings.Contains(name, "://") &&
		Credential(strings.TrimLeft(name, "-"), value) {
		return name + "=" + removed, true
	}
	if name, value, ok := strings.Cut(arg, ":"); ok && !strings.HasPrefix(value, "//") &&
		(words.Setting(name) && !harmless().MatchString(strings.TrimSpace(value)) && strings.ContainsAny(value, " ") ||
			shaped(value)) {
		return name + ": " + removed, true // a header, as in --header "Authorization: Bearer x"
	}
	if userinfo().MatchString(arg) {
		return userinfo().ReplaceAllString(arg, removed+"@"), true
	}
	flag := strings.HasPrefix(before, "-") && !strings.Contains(before, "=")
	name := ""
	if flag {
		name = strings.TrimLeft(before, "-")
	}
	if !strings.HasPrefix(arg, "-") && Credential(name, arg) && !strings.ContainsAny(arg, "@/\\ ") || shaped(arg) {
		return removed, true
	}
	if u, err := url.Parse(arg); err == nil && u.Host != "" && credentialQuery(u) {
		return removed, true
	}
	return arg, false
}

// lazy compiles an expression at its first use: every start of waldo would pay for it.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
