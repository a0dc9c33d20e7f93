package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// The kinds of values: each gives the reader and the schema of the keys that have it.

var (
	textSchema = map[string]any{"type": "string", "minLength": 1}
	refSchema  = outline.Matching("^((env|file|dotenv|age|keyring|vault|store):.+|[A-Za-z][A-Za-z0-9_.-]*)$")

	textShape     = outline.Shape{Name: "text", Schema: textSchema}
	labelShape    = outline.Shape{Name: "name", Schema: outline.Matching("^[A-Za-z][A-Za-z0-9_-]{0,62}$")}
	textsShape    = outline.Shape{Name: "list of texts", Schema: outline.Many(textSchema)}
	hostsShape    = outline.Shape{Name: "list of hosts", Schema: outline.Many(textSchema)}
	refShape      = outline.Shape{Name: "secret", Schema: refSchema}
	databaseShape = outline.Shape{Name: "secret, or sqlite:FILE",
		Schema: outline.Matching("^((env|file|dotenv|age|keyring|vault|store|sqlite):.+|[A-Za-z][A-Za-z0-9_.-]*)$")}
	refsShape  = outline.Shape{Name: "variables to secrets", Schema: outline.MapOf(refSchema)}
	pairsShape = outline.Shape{Name: "variables to texts", Schema: outline.MapOf(textSchema)}
	rolesShape = outline.Shape{Name: "names to lists of texts", Schema: outline.MapOf(outline.Many(textSchema))}
	anyShape   = outline.Shape{Name: "anything", Schema: map[string]any{}}
)

func wordShape(v strictyaml.Vocabulary) outline.Shape {
	return outline.Shape{Name: "one of", Words: v.Words, Schema: map[string]any{"enum": v.Words}}
}

// custom is a text with a reader of its own.
func custom[T any](s outline.Shape, read func(p *parser, f field, to *T)) value[T] {
	return value[T]{shapes: []outline.Shape{s}, read: read}
}

func text[T any](at func(*T) *string) value[T] { return leaf(textShape, (*parser).readText, at) }

func texts[T any](at func(*T) *[]string) value[T] {
	return leaf(textsShape, (*parser).readTexts, at)
}

// label is a name of the operator's: letters, digits, - and _.
func label[T any](at func(*T) *string) value[T] { return leaf(labelShape, (*parser).label, at) }

// command is a program and its arguments.
func command[T any](at func(*T) *[]string) value[T] {
	return leaf(textsShape, func(p *parser, f field) []string { return p.Command(f) }, at)
}

// address is the address of a server.
func address[T any](at func(*T) *string) value[T] {
	return leaf(textShape, (*parser).address, at)
}

// hosts is a list of hosts that may be reached.
func hosts[T any](at func(*T) *[]string) value[T] { return leaf(hostsShape, (*parser).hosts, at) }

// word is one of some words.
func word[T any, S ~string](v strictyaml.Vocabulary, at func(*T) *S) value[T] {
	return leaf(wordShape(v), func(p *parser, f field) S { return S(p.Word(f, v)) },
		at)
}

// words is a list of some words.
func words[T any](v strictyaml.Vocabulary, at func(*T) *[]string) value[T] {
	return leaf(wordsShape(v), func(p *parser, f field) []string { return p.Words(f, v) }, at)
}

func wordsShape(v strictyaml.Vocabulary) outline.Shape {
	return outline.Shape{
		Name: "list of", Words: v.Words, Schema: outline.Many(map[string]any{"enum": v.Words}),
	}
}

// whole is a whole number between low and high, both included.
func whole[T any](low, high int, at func(*T) *int) value[T] {
	return leaf(outline.Whole(low, high), func(p *parser, f field) int { return p.Integer(f, low, high) }, at)
}

// seconds is a whole number of seconds.
func seconds[T any](high int, at func(*T) *time.Duration) value[T] {
	return leaf(outline.Whole(1, high),
		func(p *parser, f field) time.Duration { return time.Duration(p.Integer(f, 1, high)) * time.Second },
		at)
}

// boolean is true or false.
func boolean[T any](at func(*T) *bool) value[T] {
	return leaf(boolShape, func(p *parser, f field) bool { return p.Boolean(f) }, at)
}

var boolShape = outline.Shape{Name: "true or false", Schema: outline.Typed("boolean")}

// duration is a time such as 90s, of at most most.
func duration[T any](most time.Duration, at func(*T) *time.Duration) value[T] {
	return leaf(outline.Time(most), func(p *parser, f field) time.Duration { return p.Duration(f, most) },
		at)
}

// ref is a secret, by its place or its name.
func ref[T any](at func(*T) *secret.Ref) value[T] {
	return leaf(refShape, (*parser).used, at)
}

// refs is a mapping of variable to secret.
func refs[T any](at func(*T) *map[string]secret.Ref) value[T] {
	return leaf(refsShape, (*parser).refs, at)
}

// pairs maps variables to texts without secrets.
func pairs[T any](at func(*T) *map[string]string) value[T] {
	return leaf(pairsShape, (*parser).pairs, at)
}

func (p *parser) readText(f field) string { return p.Text(f) }

func (p *parser) readTexts(f field) []string { return p.Texts(f) }

func (p *parser) label(f field) string {
	s := p.Text(f)
	if s != "" && !isLabel(s) {
		p.Fail(f.Val, "value.name", "letters, digits, - and _, beginning with a letter", "%q cannot be %q", f.Name,
			contract.Cut(s, 40))
	}
	return s
}

// used reads a secret and notes its use.
func (p *parser) used(f field) secret.Ref {
	r := p.ref(f)
	if r != "" {
		p.cfg.SecretUses = append(p.cfg.SecretUses, contract.SecretUse{Ref: r, At: p.At(f.Val), By: p.user})
	}
	return r
}

// database reads where a database is: a secret, or sqlite: and a path.
func (p *parser) database(f field) string {
	if path, ok := contract.SQLiteFile(f.Val.Value); ok && f.Val.Kind == yaml.ScalarNode {
		if path == "" || strings.ContainsRune(path, 0) {
			p.Fail(f.Val, "value.empty", `as in url: "sqlite:./shop.db"`, "sqlite: wants the path of a file")
		}
		return f.Val.Value
	}
	return string(p.used(f))
}

func (p *parser) refs(f field) map[string]secret.Ref {
	out := map[string]secret.Ref{}
	for _, e := range p.Entries(f) {
		if !secret.Variable(e.Name) {
			p.Fail(e.Key, "value.name", "", "%q is not the name of a variable", contract.Cut(e.Name, 40))
		}
		out[e.Name] = p.used(e)
	}
	return out
}

func (p *parser) pairs(f field) map[string]string {
	out := map[string]string{}
	for _, e := range p.Entries(f) {
		if !secret.Variable(e.Name) {
			p.Fail(e.Key, "value.name", "", "%q is not the name of a variable", contract.Cut(e.Name, 40))
		}
		if out[e.Name] = p.Text(e); contract.LooksSecret(out[e.Name]) {
			p.Fail(e.Val, contract.CodeLiteral, "move it to secrets, as env:VARIABLE", "the value of %s looks like a secret",
				contract.Cut(e.Name, 40))
		}
	}
	return out
}

var hash = pattern.Lazy(`^sha256:[0-9a-f]{64}$`)

// isLabel reports whether s is at most 63 letters, digits, '_' and '-', a letter first.
func isLabel(s string) bool { return secret.Name(s) && !strings.Contains(s, ".") }

// ref parses a secret's source: a place such as env:VARIABLE, or a name. Its messages never quote the value: that
// could be the secret itself.
func (p *parser) ref(f field) secret.Ref {
	if f.Val.Kind != yaml.ScalarNode || f.Val.Tag != "!!str" {
		p.Fail(f.Val, contract.CodeLiteral, "write env:VARIABLE", "%q wants the name of a secret, not a secret", f.Name)
		return ""
	}
	ref := secret.Ref(f.Val.Value)
	if _, ok := ref.Place(); ok || secret.Name(f.Val.Value) && !contract.LooksSecret(f.Val.Value) {
		return ref
	}
	if strings.HasPrefix(f.Val.Value, "file:") || strings.HasPrefix(f.Val.Value, "dotenv:") {
		p.Fail(f.Val, "value.path", "write the whole path, as in file:/etc/waldo/token", "%q wants an absolute path", f.Name)
		return ""
	}
	p.Fail(f.Val, contract.CodeLiteral, "write env:VARIABLE",
		"%q wants the name of a secret, as in env:GITHUB_TOKEN, never the secret itself", f.Name)
	return ""
}
