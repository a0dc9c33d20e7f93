//go:build !unix

package main

import "syscall"

func sessionOfItsOwn() *syscall.SysProcAttr { return nil }
