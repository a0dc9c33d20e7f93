//go:build !linux

package zygote
