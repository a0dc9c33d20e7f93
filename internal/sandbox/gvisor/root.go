//go:build linux && (amd64 || arm64)

package gvisor

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/inroot"
	"waldo/internal/sandbox/mount"
	"waldo/internal/sandbox/netns"
)

// etc lists files that programs expect in /etc. They hold nothing of the host.
var etc = []job.Node{
	{Path: "/etc/passwd", Kind: job.File,
		From: "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:1000:1000::/workspace:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
	{Path: "/etc/group", Kind: job.File, From: "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"},
	{Path: "/etc/hosts", Kind: job.File, From: sandbox.Hosts},
	{Path: "/etc/nsswitch.conf", Kind: job.File, From: "passwd: files\ngroup: files\nhosts: files dns\n"},
	{Path: "/etc/resolv.conf", Kind: job.File},
	{Path: "/etc/localtime", Kind: job.Link, From: "/usr/share/zoneinfo/UTC"},
}

// shared lists the files of the host's /etc that every sandbox sees. None identifies the host.
var shared = []string{"/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/certs"}

// tree says what the root of a sandbox is made of before the profile's mounts: the host's /usr, a made-up /etc,
// and empty folders.
func tree(p sandbox.Profile) ([]job.Node, error) {
	t := p.Template
	var nodes []job.Node
	if t.Dir != "" {
		_, links, err := mount.Top(t)
		for _, l := range links {
			nodes = append(nodes, job.Node{Path: l.Name, Kind: job.Link, From: l.Target})
		}
		return append(nodes, empty...), err
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"} {
		info, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if info.Mode().Type() != os.ModeSymlink {
			nodes = append(nodes, job.Node{Path: dir, Kind: job.Bind, From: dir})
			continue
		}
		link, err := os.Readlink(dir)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, job.Node{Path: dir, Kind: job.Link, From: link})
	}
	for _, n := range etc {
		if n.Path == "/etc/resolv.conf" && len(p.Network.Ports) > 0 {
			n.From = netns.ResolvConf
		}
		nodes = append(nodes, n)
	}
	for _, name := range shared {
		if from, err := filepath.EvalSymlinks(name); err == nil {
			nodes = append(nodes, job.Node{Path: name, Kind: job.Bind, From: from})
		}
	}
	return append(nodes, empty...), nil
}

// hidden returns the nodes that cover the template's credentials.
func hidden(t sandbox.Template) (nodes []job.Node, err error) {
	paths, err := inroot.CredentialsOf(t.Dir)
	for _, p := range paths {
		n := job.Node{Path: path.Clean(p), Kind: job.Hide}
		if strings.HasSuffix(p, "/") {
			n.From = "/"
		}
		nodes = append(nodes, n)
	}
	return nodes, err
}

// empty are the folders of every sandbox that start without anything in them.
var empty = []job.Node{{Path: "/proc", Kind: job.Dir}, {Path: "/dev", Kind: job.Dir},
	{Path: "/workspace", Kind: job.Dir}}

// places returns the volumes of a sandbox. /dev/shm is always one.
func places(p sandbox.Profile) []sandbox.Tmpfs {
	return append(slices.Clone(p.Tmpfs), sandbox.Tmpfs{Target: "/dev/shm", Bytes: p.Limits.Disk, Inodes: p.Limits.Inodes})
}

// byDepth puts outer nodes before what is in them.
func byDepth(nodes []job.Node) []job.Node {
	return slices.SortedStableFunc(slices.Values(nodes), func(a, b job.Node) int {
		return strings.Count(a.Path, "/") - strings.Count(b.Path, "/")
	})
}
