//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a terminal's interrupt from a process of the demo: the demo
// ends it, once it has said how it went.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
