package fetch

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"

	"waldo/internal/executor/direct"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

const (
	maxImage = 1 << 20 // bytes of a picture
	maxHTML  = 2 << 20 // bytes of a page that is converted
)

// pictures are the types that models see. The bytes must be of the type that the host says.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// shown is the structured content.
type shown struct {
	URL       string   `json:"url"`
	Status    int      `json:"status"`
	Type      string   `json:"content_type,omitempty"`
	Text      string   `json:"text,omitempty"`
	Truncated bool     `json:"truncated,omitempty"`
	Cached    bool     `json:"cached,omitempty"`
	Redirects []string `json:"redirects,omitempty"`
}

// show makes the outcome of an answer.
func show(got *answer, a asked, effect facts.SideEffect) call.Outcome {
	kind, _, err := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if err != nil {
		kind = "application/octet-stream"
	}
	s := shown{URL: got.url, Status: got.StatusCode, Type: kind, Truncated: got.cut, Cached: got.cached, Redirects: got.redirects}
	head := fmt.Sprintf("%s answered %d %s, %s, %d bytes", got.url, got.StatusCode, http.StatusText(got.StatusCode), kind,
		len(got.body))
	if len(got.redirects) > 0 {
		head += fmt.Sprintf(", after %d redirects", len(got.redirects))
	}
	if got.cached {
		head += ", kept from earlier in this session"
	}
	if got.cut {
		head += fmt.Sprintf(", cut off at %d bytes", len(got.body))
	}
	var more []call.Content
	switch {
	case len(got.body) == 0:
	case slices.Contains(pictures, kind):
		block, why := picture(kind, got)
		if why != "" {
			head += ": " + why
		} else {
			more = append(more, block)
		}
	case textual(kind):
		s.Text = text(kind, got.Header.Get("Content-Type"), got.body, a.raw)
		more = append(more, call.Text(s.Text))
	default:
		head += ": not shown, because it is neither text nor a picture"
	}
	out := direct.Done(effect, append([]call.Content{call.Text(head)}, more...)...)
	if got.StatusCode >= 400 {
		out.IsError, out.Facts.Status = true, facts.Failed
	}
	if len(more) == 0 || more[0].Type == "text" { // beside a picture, structured content would hide it
		if b, err := json.Marshal(s); err == nil {
			if v, err := strictjson.Parse(b); err == nil {
				out.Structured = v
			}
		}
	}
	return out
}

// picture returns an image, or the reason why it cannot.
func picture(kind string, got *answer) (call.Content, string) {
	switch {
	case got.cut || len(got.body) > maxImage:
		return call.Content{}, fmt.Sprintf("a picture has at most %d bytes", maxImage)
	case http.DetectContentType(got.body) != kind:
		return call.Content{}, "not shown, because its bytes are not of that type"
	}
	b, err := json.Marshal(map[string]string{"type": "image", "mimeType": kind,
		"data": base64.StdEncoding.EncodeToString(got.body)})
	if err != nil {
		return call.Content{}, "not shown"
	}
	v, err := strictjson.Parse(b)
	if err != nil {
		return call.Content{}, "not shown"
	}
	return call.Content{Type: "image", Raw: v}, ""
}

// textual reports whether a media type is text.
func textual(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript", "application/x-ndjson",
			"application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/graphql"}, kind)
}

// text returns a body as UTF-8, and HTML as Markdown unless raw. The host's own charset counts, then the document's.
func text(kind, contentType string, body []byte, raw bool) string {
	e, name, certain := charset.DetermineEncoding(body, contentType)
	s := string(body)
	if name != "utf-8" && (certain || !utf8.Valid(body)) {
		if decoded, err := e.NewDecoder().Bytes(body); err == nil {
			s = string(decoded)
		}
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if raw || kind != "text/html" && kind != "application/xhtml+xml" {
		return s
	}
	if len(s) > maxHTML {
		s = strings.ToValidUTF8(s[:maxHTML], "")
	}
	out, err := convert(s)
	if err != nil {
		return s
	}
	return out
}

// maxIndent is how many quotes and lists can be in each other. Markdown repeats the indentation at each line, so that
// without a bound some kilobytes of tags make gigabytes of text.
const maxIndent = 20

// convert makes Markdown of HTML. A page that makes the library fail is shown as it is. The library's escaping is off:
// for each "[" it looks for a "]" up to the end of the page, so that a page of brackets would take half an hour.
func convert(s string) (out string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("converting: %v", r)
		}
	}()
	if crowded(s) {
		return "", errors.New("converting: too many elements")
	}
	page, err := html.Parse(strings.NewReader(s))
	if err != nil {
		return "", err
	}
	flatten(page, 0)
	c := converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled),
		converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin()))
	b, err := c.ConvertNode(page)
	return string(b), err
}

// maxElements is how many elements a page has that is converted: ten times those of a long page.
const maxElements = 200_000

// crowded reports whether a page has more elements than that. The parser repeats each open element of style, such as <b>,
// in each paragraph and cell that begins while it is open, up to three of a name: so these count again with each tag.
func crowded(s string) bool {
	open, elements := map[string]int{}, 0
	styles := 0
	for z := html.NewTokenizer(strings.NewReader(s)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			return false
		}
		if kind != html.StartTagToken && kind != html.EndTagToken {
			continue
		}
		b, _ := z.TagName()
		name := string(b)
		if slices.Contains(style, name) {
			was := min(open[name], 3)
			if open[name]++; kind == html.EndTagToken {
				open[name] = max(0, open[name]-2)
			}
			styles += min(open[name], 3) - was
		}
		if kind == html.StartTagToken {
			elements++
		}
		if elements += styles; elements > maxElements {
			return true
		}
	}
}

// style are the elements that HTML calls formatting.
var style = []string{"a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"}

// flatten takes the indentation from quotes and lists that are too deep. The parser bounds the depth of the page.
func flatten(n *html.Node, depth int) {
	switch n.DataAtom {
	case atom.Blockquote, atom.Ul, atom.Ol, atom.Li:
		if depth++; depth > maxIndent {
			n.DataAtom, n.Data = atom.Div, atom.Div.String()
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		flatten(c, depth)
	}
}
