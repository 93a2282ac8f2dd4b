// Command pause is the process of a Pod's sandbox, like the pause program of Kubernetes. The Deployment of the tests
// uses it as its container too. The program waits for SIGTERM or SIGINT. In a Pod with a shared PID namespace it is PID
// 1, so it also reaps orphaned processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
}
