package config

import (
	"cmp"
	"net"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/strictyaml"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/contract"
)

var network = &mapping[contract.Network]{
	name: "network",
	doc:  "[egress.md](../egress.md) describes what a sandbox may reach.",
	example: "capabilities:\n  run_python: {transport: sandboxed_exec, network: {allow: [api.example.com, " +
		"'GET files.example.com/v1/*']}}\n",
	keys: []key[contract.Network]{
		{"allow", hosts(func(n *contract.Network) *[]string { return &n.Allow }),
			"nothing", "Hosts it may reach, as in api.example.com, *.example.com, db.example.com:5432 or GET " +
				"api.example.com/v1/*; localhost:5432 is that port of this machine.",
			"internal/network/egress"},
		{"limits", nested(traffic, func(n *contract.Network) *contract.Traffic { return &n.Limits }),
			"waldo's own", "Traffic limits of one sandbox.", "internal/network/egress"},
	},
}

var traffic = &mapping[contract.Traffic]{
	name: "limits",
	keys: []key[contract.Traffic]{
		{"bytes", whole(1, 1<<50, func(t *contract.Traffic) *int { return &t.Bytes }),
			"16 GiB", "Bytes both ways, over the life of the sandbox.", "internal/network/egress"},
		{"bytes_per_second", whole(1<<10, 1<<40, func(t *contract.Traffic) *int { return &t.BytesPerSecond }),
			"unlimited", "Bytes both ways in a second; faster traffic waits.", "internal/network/egress"},
		{"requests_per_second", whole(1, 1_000_000, func(t *contract.Traffic) *int { return &t.RequestsPerSecond }),
			"none; 6000 connections in a minute", "Requests that waldo reads, and other connections; further ones are refused.",
			"internal/network/egress"},
		{"connections", whole(1, 10_000, func(t *contract.Traffic) *int { return &t.Connections }),
			"256", "Connections at a time.", "internal/network/egress"},
	},
}

// reachable holds the hosts of a sandbox: a word, or a mapping.
func reachable[T any](words strictyaml.Vocabulary, at func(*T) *contract.Network) value[T] {
	words = words.Or("{allow: [HOST]}")
	one := custom(wordShape(words),
		func(p *parser, f field, to *T) { at(to).Internal = p.Word(f, words) == "internal_only" })
	return either(isMapping, nested(network, at), one)
}

// hosts reads a list of hosts that may be reached.
func (p *parser) hosts(f field) []string {
	lines := p.Texts(f)
	for i, h := range lines {
		if h == "" {
			continue
		}
		l, sound := contract.HostLine(h)
		own := f.Key.Value == "allow" && contract.LoopbackLine(h)
		if own {
			p.ports = append(p.ports, ownPort{p.At(f.Val.Content[i]), h})
		}
		if !sound && !own {
			p.Fail(f.Val.Content[i], "value.host", contract.HostHint(l), "%q is not the name of a host", contract.Cut(h, 40))
			continue
		}
		if wide := wideHosts[l.Host.Warning(nil)]; wide != "" {
			p.Warn(p.At(f.Val.Content[i]), "host.wide", "name the host itself, as in mine"+l.Host.String()[1:], "%q lets out %s",
				contract.Cut(h, 60), wide)
		}
	}
	return lines
}

// ownPort is a line that names a port of this machine.
type ownPort struct {
	at   contract.Position
	line string
}

// checkPorts refuses waldo's own ports in lines of localhost: a connection from a sandbox would count as the user's.
func (p *parser) checkPorts() {
	_, gateway, _ := net.SplitHostPort(cmp.Or(p.cfg.Gateway.Listen, "127.0.0.1:7676"))
	for _, l := range p.ports {
		if port := strings.TrimPrefix(l.line, "localhost:"); port == gateway || port == "7677" {
			p.against(l.at, "host.own", "leave it out: a sandbox reaches neither waldo's gateway nor its console",
				l.line+" is a port of waldo itself")
		}
	}
}

// wideHosts describes the risk of a host that strangers share.
var wideHosts = map[string]string{
	"public suffix": "every site whose name ends so",
	"shared suffix": "sites of strangers: anybody can have a name below it",
}

// registries are where a sandbox may install packages from, by manager.
type registries = map[string]contract.Registry

var packages = &mapping[registries]{
	name:    "packages",
	example: "capabilities:\n  run_python: {transport: sandboxed_exec, packages: {pypi: allow}}\n",
	begin:   func(_ *parser, _ field, all *registries) { *all = registries{} },
	keys: []key[registries]{
		{"npm", manager("npm"), "deny",
			"The npm registry; allow is the one that this machine is set to, else npm's own default.",
			"internal/network/egress"},
		{"pypi", manager("pypi"), "deny",
			"The pip index; allow is the one that this machine is set to, else pip's own default.", "internal/network/egress"},
		{"debian", manager("debian"), "deny",
			"The archive of apt; allow is Debian's own, with the release of this machine.", "internal/network/egress"},
	},
	check: func(p *parser, f field, all *registries, _ map[string]field) {
		if isMapping(f.Val) && len(f.Val.Content) == 0 {
			p.Fail(f.Val, "value.empty", "as in {npm: allow}", "packages says nothing")
		}
		if len(*all) == 0 {
			*all = nil
		}
	},
}

var managerWords = strictyaml.OneOf("allow", "deny")

// manager is where the packages of one manager come from.
func manager(name string) value[registries] {
	one := custom(wordShape(managerWords), func(p *parser, f field, all *registries) {
		if p.Word(f, managerWords) == "allow" {
			(*all)[name] = contract.Registry{}
		}
	})
	own := custom(registry.shape(), func(p *parser, f field, all *registries) {
		var r contract.Registry
		registry.read(p, f, &r)
		if r.Suite != "" && name != "debian" {
			p.Fail(f.Key, "key.unknown", "leave it out", "suite is for debian alone")
		}
		(*all)[name] = r
	})
	return either(isMapping, own, one)
}

var registry = &mapping[contract.Registry]{
	name: "registry",
	example: "capabilities:\n  run_javascript:\n    transport: sandboxed_exec\n" +
		"    packages: {npm: {registry: https://npm.example.com/, pins: required, lock: ./package-lock.json}}\n",
	keys: []key[contract.Registry]{
		{"registry", leaf(textShape, (*parser).registryAddress, func(r *contract.Registry) *string { return &r.URL }),
			"as this machine is set, else the manager's own default",
			"Its address, as in https://registry.example.com/npm; pip's ends in /simple.", "internal/network/egress"},
		{"files", leaf(hostsShape, (*parser).registryFiles, func(r *contract.Registry) *[]string { return &r.Files }),
			"none", "Further hosts of the registry's files, as in files.example.com or files.example.com/packages/*.",
			"internal/network/egress"},
		{"pins", custom(wordShape(pinWords), func(p *parser, f field, _ *contract.Registry) { p.Word(f, pinWords) }),
			"every package", "With required, only the versions in lock pass.", "internal/network/egress"},
		{"lock", leaf(textShape, (*parser).lock, func(r *contract.Registry) *string { return &r.Lock }),
			"none; needed with pins",
			"The package-lock.json, the requirements.txt with == alone, or the lines NAME=VERSION for apt, from the folder " +
				"of this file.", "internal/network/egress"},
		{"suite", leaf(textShape, (*parser).suite, func(r *contract.Registry) *string { return &r.Suite }),
			"the release of this machine where it is Debian, else stable, and main",
			"Of debian: the suite and its components, as in bookworm main.", "internal/network/egress"},
	},
	check: func(p *parser, f field, r *contract.Registry, at map[string]field) {
		if len(f.Val.Content) == 0 {
			p.Fail(f.Val, "value.empty", "write allow", "%s says nothing", f.Name)
		}
		pins := at["pins"].Val
		if pinned := pins != nil && pins.Kind == yaml.ScalarNode && pins.Value == "required"; pinned != (r.Lock != "") {
			p.Fail(f.Key, "key.missing", "as in {pins: required, lock: ./package-lock.json}",
				"pins: required and lock stand together")
		}
	},
}

var pinWords = strictyaml.OneOf("required")

func (p *parser) registryAddress(f field) string {
	s := p.Text(f)
	switch {
	case strings.ContainsAny(s, "@?"):
		p.Fail(f.Val, contract.CodeLiteral, "put the token under secrets, with inject",
			"the address of a registry must not hold a password")
	case s != "" && contract.RegistryLine(s) == "":
		p.Fail(f.Val, "value.host", "as in https://registry.example.com/npm",
			"%q is not the https address of a registry", f.Name)
	}
	return s
}

var suites = pattern.Lazy(`^[a-z0-9][A-Za-z0-9._/-]*( [a-z0-9][a-z0-9.-]*)+$`)

func (p *parser) suite(f field) string {
	s := p.Text(f)
	if s != "" && !suites().MatchString(s) {
		p.Fail(f.Val, "value.name", "as in bookworm main", "%q is no suite with its components", contract.Cut(s, 40))
	}
	return s
}

func (p *parser) registryFiles(f field) []string {
	list := p.hosts(f)
	for i, h := range list {
		if strings.ContainsAny(h, " ") || strings.HasPrefix(h, "*") {
			p.Fail(f.Val.Content[i], "value.host", "as in files.example.com or files.example.com/npm/*",
				"files wants one host in each line, without methods")
		}
	}
	return list
}

func (p *parser) lock(f field) string {
	s := p.Text(f)
	if s != "" && !filepath.IsLocal(s) && !filepath.IsAbs(s) {
		p.Fail(f.Val, "value.name", "as in ./package-lock.json",
			"the lock stands in the folder of this file, below it, or at an absolute path")
	}
	return s
}
