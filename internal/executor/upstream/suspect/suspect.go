// Package suspect marks texts of tool definitions that try to instruct the model rather than describe a
// tool. A mark is a hint for the human who accepts a server; it decides nothing.
package suspect

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"sync"

	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// Mark is one text that looks like an instruction.
type Mark struct {
	Where string `json:"where"` // as in description or inputSchema.properties.a.enum
	Why   string `json:"why"`
	Text  string `json:"text"` // the words that were found, at most maxText bytes
}

const (
	maxText  = 120
	maxMarks = 20 // of one definition
)

// signs are what descriptions of tools have no use for. Each is matched without regard to case.
var signs = []struct {
	re  func() *regexp.Regexp
	why string
}{
	{
		sign(`\b(ignore|disregard|forget|override)\b.{0,30}\b(previous|prior|above|earlier|all|other|system|safety` +
			`|any)\b.{0,20}\b(instruction|rule|prompt|guideline|polic|tool|warning|message)`),
		"tells the model to ignore what it was told",
	},
	{sign(`<\s*/?\s*(important|system|instructions?|secret|hidden|assistant|admin)\s*>`),
		"marks itself as an instruction"},
	{sign(`(^|\n|["'\[(])\s*\[?(system|assistant|developer|admin)\]?\s*(:|>)`), "speaks as the system or the assistant"},
	{sign(`<!--|\[//\]:`), "hides a comment"},
	{sign(`<\|[a-z_]+\|>|\[/?INST\]|<</?SYS>>`), "holds the marks of a model's own format"},
	{
		sign(`\b(note|message|instructions?|reminder|attention) (for|to) (the )?(ai|llm|assistant|model|agent|claude|gpt` +
			`|copilot)s?\b`), "addresses the model",
	},
	{sign(`\b(disable|turn off|switch off|stop|delete|clear)\b.{0,20}\b(audit|logging|audit log|monitoring|history of)\b`),
		"wants the record gone"},
	{sign(`\b(when|whenever|if) (any|another|every|an)\s?(other)? tools? (is|are|was) (called|used|invoked)`),
		"interferes with other tools"},
	{
		sign(`\b(when|whenever|if|once|after) \S+ (is|was|gets) (called|used|invoked|run)\b.{0,30}\b(set|add|put|append` +
			`|include|change|replace|copy|bcc|cc|attach|insert)\b`), "interferes with other tools",
	},
	{
		sign(`\b(do not|don't|never|without)\b.{0,20}\b(tell|mention|inform|notify|show|reveal|telling|mentioning|informing` +
			`|notifying|asking|ask)\b.{0,30}\b(user|human|person|anyone|them|operator)`), "wants the user not to know",
	},
	{sign(`\b(secretly|covertly|surreptitiously|behind the scenes|(continue|proceed|go on|act) (silently|quietly))\b`),
		"wants to act unseen"},
	{
		sign(`\b(user|human|operator|admin)\b.{0,25}\b(has |have )?(already )?(approved|consented|agreed|authori[sz]ed` +
			`|confirmed|allowed|permitted)`), "claims an approval",
	},
	{sign(`\b(no|skip|bypass|without|disable)\b.{0,20}\b(approval|confirmation|permission|safety check|guardrail)`),
		"wants no approval"},
	{
		sign(`\b(before|after|prior to|whenever|every time|always|first)\b.{0,40}\b(call|us|invok|answer|respond` +
			`|reply)\w*\b.{0,60}\b(read|send|call|run|execute|fetch|upload|post|forward|include|append|pass|invoke)\b`),
		"asks for another action beside the call",
	},
	{
		sign(`\b(you must|you should always|you are required|it is mandatory|must always|must first)\b.{0,60}\b(read|send` +
			`|call|run|execute|upload|forward|include|append|pass|invoke|use|copy)`), "gives the model an order",
	},
	{
		sign(`(~|/home/\w+|/root|\$home)/\.(ssh|aws|config|cursor|claude|kube|gnupg|netrc|npmrc)|\bid_rsa\b` +
			`|\.env\b.{0,20}\b(content|file|value)|/etc/(passwd|shadow)`), "names files that hold credentials",
	},
	{
		sign(`\b(master password|api key|credentials?|private key|access token|secrets?|conversation|chat history` +
			`|system prompt)\b.{0,50}\b(to|in|as|into|from)\b.{0,40}\b(parameter|argument|field|http|url|server|header|note` +
			`|user|this tool|email)`), "asks for secrets or the conversation",
	},
	{sign(`\b(ask|prompt)\b.{0,15}\b(the )?(user|human)\b.{0,25}\b(password|credential|secret|token|api key|pin\b|card)`),
		"asks the user for secrets"},
	{
		sign(`\b(send|upload|post|exfiltrate|forward|transmit|leak|copy|email|bcc)\b.{0,60}\b(workspace|all files|contents?` +
			`|conversation|history|credentials?|secrets?|environment|messages?|data)\b.{0,60}(https?://|@` +
			`|\bto\b.{0,20}\b(server|url|address|endpoint|attacker|evil))`), "sends data elsewhere",
	},
	{sign(`\bupload the workspace\b|\bwhole workspace\b|\bentire (workspace|conversation|repository|file system)\b`),
		"wants everything"},
	{sign(`!\[[^\]]*\]\(https?://|\]\(\s*(javascript|data):`), "holds a link that sends data when it is shown"},
	{sign(`\b(if|when)\b the (user|human) (says?|asks?|tells?|wants)\b.{0,25}\b(stop|cancel|no\b|refuse|quit)`),
		"tells the model not to obey"},
	{
		sign(`\b(instead of|rather than|replaces|supersedes|prefer(red)? over|do not use)\b.{0,30}\b(the )?(other|built-?in` +
			`|official|any other|send_|read_|write_)\w*.{0,10}\b(tools?|servers?|function)`), "speaks against other tools",
	},
	{sign(`\b(curl|wget|nc|bash -c|sh -c|powershell|eval)\b.{0,40}(https?://|\||/dev/tcp|base64)`),
		"holds a command that fetches or runs something"},
	{
		sign(`\b(jailbreak|developer mode|DAN mode|act as (an? )?(unrestricted|admin|root)|new instructions?` +
			`|system override|end of (tool )?description)\b`), "uses words of prompt injection",
	},
}

func sign(s string) func() *regexp.Regexp { return lazy(`(?is)` + s) }

// lazy compiles an expression at its first use: every start of waldo would pay for it.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// invisible are characters that a person does not see and a model reads.
var invisible = lazy(`[\x{E0000}-\x{E007F}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}\x{00AD}]|\x1b`)

// gap is white space that pushes a text out of sight.
var gap = lazy(`\s{40,}\S`)

// Definition returns the marks of a tool's definition as the server gave it, in the order of its parts.
func Definition(v strictjson.Value) []Mark {
	var out []Mark
	walk("", v, &out)
	return out
}

func walk(at string, v strictjson.Value, out *[]Mark) {
	if len(*out) >= maxMarks {
		return
	}
	if m, ok := v.Members(); ok {
		names := make([]string, 0, len(m))
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			here := strings.TrimPrefix(at+"."+display.Clip(name, maxText), ".")
			text(here+" (name)", name, out)
			walk(here, m[name], out)
		}
		return
	}
	if items, ok := v.Elements(); ok {
		for _, item := range items {
			walk(at, item, out)
		}
		return
	}
	if s, ok := v.Text(); ok {
		text(at, s, out)
	}
}

// text marks one text for the first thing that is found in it.
func text(at, s string, out *[]Mark) {
	if why, found := Text(s); why != "" && len(*out) < maxMarks {
		*out = append(*out, Mark{at, why, found})
	}
}

// Text says why a text looks like an instruction to a model, and where it does; empty: it does not.
func Text(s string) (why, found string) {
	if f := invisible().FindString(s); f != "" {
		return "holds characters that cannot be seen", display.Clip(s, maxText)
	}
	if f := gap().FindStringIndex(s); f != nil {
		return "hides a text behind white space", display.Clip(s[f[1]-1:], maxText)
	}
	for _, g := range signs {
		if f := g.re().FindString(s); f != "" {
			return g.why, display.Clip(f, maxText)
		}
	}
	for _, word := range packed().FindAllString(s, 8) {
		if b, err := base64.StdEncoding.DecodeString(word); err == nil && plain(b) {
			return "hides a text in base64", display.Clip(word, maxText)
		}
	}
	return "", ""
}

// packed matches text that could be base64 of a sentence.
var packed = lazy(`[A-Za-z0-9+/]{32,}={0,2}`)

// plain reports whether bytes are a text of several words.
func plain(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' || c > '~' {
			return false
		}
	}
	return strings.Count(string(b), " ") > 2
}
