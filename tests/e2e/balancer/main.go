// Command balancer forwards TCP connections to several servers in turn, as kube-proxy does for a Service with several
// Pods. If a server does not accept a connection within a second, the next server gets the connection.
//
//	balancer FILE LISTEN SERVER...
//
// LISTEN and each SERVER are addresses. FILE contains the address of a server that gets no new connections. The file
// may be missing.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: balancer FILE LISTEN SERVER...")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	servers := os.Args[3:]
	var next atomic.Uint64
	for {
		client, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go pass(client.(*net.TCPConn), chosen(servers, os.Args[1]), int(next.Add(1)%uint64(len(servers))))
	}
}

// chosen returns the servers without the one whose address is in the file.
func chosen(servers []string, file string) []string {
	name, _ := os.ReadFile(file)
	return slices.DeleteFunc(slices.Clone(servers), func(server string) bool { return server == strings.TrimSpace(string(name)) })
}

// pass forwards the connection of a client to a server. It tries the servers in order, from index first on, until one
// accepts.
func pass(client *net.TCPConn, servers []string, first int) {
	defer client.Close()
	for i := range servers {
		conn, err := net.DialTimeout("tcp", servers[(first+i)%len(servers)], time.Second)
		if err != nil {
			continue
		}
		server := conn.(*net.TCPConn)
		defer server.Close()
		done := make(chan struct{})
		go func() {
			copyAll(server, client)
			close(done)
		}()
		copyAll(client, server)
		<-done
		return
	}
}

// copyAll copies bytes in one direction until end of file, and then closes `to` for writing. After an error, such as a
// reset, it closes both connections.
func copyAll(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.CloseWrite()
}
