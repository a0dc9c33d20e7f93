// A control plane of Kubernetes in one program: its first argument is etcd or apiserver, the others are that program's.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	part := ""
	if len(os.Args) > 1 {
		part = os.Args[1]
		os.Args = append([]string{part}, os.Args[2:]...)
	}
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|apiserver FLAG…")
		os.Exit(2)
	}
}
