package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// server is one of the two compared servers, with a client for HTTP/2 and a client for HTTP/1.1.
type server struct {
	name   string
	host   string
	client [2]*http.Client
}

// pair is kube-apiserver and our server, in this order. Arrays with one value of each server have the same order.
type pair [2]*server

func connect(builtin, ours string) (pair, error) {
	var both pair
	for at, file := range []string{builtin, ours} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return both, err
		}
		trust, err := rest.TLSConfigFor(config)
		if err != nil {
			return both, err
		}
		both[at] = &server{name: []string{"kube-apiserver", "our server"}[at], host: strings.TrimPrefix(config.Host, "https://")}
		for version := range both[at].client {
			// The client must not change requests and answers. So it asks for no compression, and follows no redirects.
			transport := &http.Transport{
				TLSClientConfig: trust.Clone(), DisableCompression: true, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: version == 0,
			}
			if version == 1 {
				transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			}
			both[at].client[version] = &http.Client{
				Transport:     transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}
		}
	}
	return both, nil
}

// message is a request to one server, with the values of this server in place of symbols.
type message struct {
	method, target string // target: path and query as they are sent
	header         [][2]string
	body           []byte
}

// answer is the response of a server. For a watch, it is the part of the response before the events.
type answer struct {
	status int
	header http.Header
	body   []byte
	stream io.ReadCloser // events of a started watch
}

// patience is the maximum time until an answer. kube-apiserver takes 3 s to refuse a future resourceVersion.
const patience = 20 * time.Second

// hungUp is the text of an answer if a server ended the connection (HTTP/1.1) or the stream (HTTP/2) without a
// response. kube-apiserver does this if its handler panics.
const hungUp = "no answer, as after a panic"

// ask sends a request and returns the answer. If a watch has started, the caller reads and closes the stream of the
// answer. If a server ends the connection without a response, the status of the answer is 0, and its body is the error.
func (s *server) ask(ctx context.Context, version int, message message, watch bool) (answer, error) {
	// A timeout of the context would also end a started watch. So a timer cancels the context, and is stopped when a
	// watch has started.
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(patience, cancel)
	path, query, _ := strings.Cut(message.target, "?")
	request, err := http.NewRequestWithContext(ctx, message.method, "https://"+s.host+"/", bytes.NewReader(message.body))
	if err != nil {
		cancel()
		return answer{}, err
	}
	request.URL = &url.URL{Scheme: "https", Host: s.host, Opaque: path, RawQuery: query}
	request.Header["User-Agent"] = nil
	for _, field := range message.header {
		request.Header[field[0]] = append(request.Header[field[0]], field[1])
	}
	if len(request.Header["User-Agent"]) > 1 {
		request.Header["User-Agent"] = request.Header["User-Agent"][1:]
	}
	response, err := s.client[version].Do(request)
	if err != nil && errors.As(err, new(*url.Error)) && ctx.Err() == nil {
		cancel()
		why := err.Error()
		if errors.Is(err, io.EOF) || strings.Contains(why, "INTERNAL_ERROR; received from peer") {
			why = hungUp
		}
		// The body has the server's name, so the answers differ even if neither server has sent a response.
		return answer{body: []byte(s.name + ": " + why)}, nil
	}
	if err != nil {
		cancel()
		return answer{}, fmt.Errorf("%s: %s %s: %w", s.name, message.method, message.target, err)
	}
	if watch && response.StatusCode == http.StatusOK {
		late.Stop()
		return answer{status: response.StatusCode, header: response.Header, stream: &cancelled{response.Body, cancel}}, nil
	}
	defer cancel()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %s %s: cannot read the body of the response: %w", s.name, message.method, message.target, err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: body}, nil
}

// cancelled is the body of a response. Close also cancels the request.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelled) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}
