// Command probe is the lab's only program that runs inside pods. It is the pause container of every pod and
// pid 1 of every node, and it lets a test look at the network from where a pod stands.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage:
  probe pause                     wait for a signal, reap what dies meanwhile
  probe dns NAME [SERVER] [udp|tcp]
  probe tcp HOST:PORT
  probe get URL                   fetch all of it, print its size; certificates are not checked
  probe serve HOST:PORT           /bytes/N answers N bytes, everything else the host's name
  probe webhook HOST:PORT CERT KEY
                                  admit everything, mark it with the label lab/webhook=called
  probe fill FILE BYTES           write that many bytes
  probe end CODE TEXT             leave TEXT as the last words of a container, and end with CODE
Every question is given up after PROBE_TIMEOUT (default 3s).
`

func main() {
	args := append(os.Args[1:], "", "", "", "")
	var err error
	switch args[0] {
	case "pause":
		pause()
	case "dns":
		err = dns(args[1], args[2], args[3])
	case "tcp":
		err = connect(args[1])
	case "get":
		err = get(args[1])
	case "serve":
		err = http.ListenAndServe(args[1], http.HandlerFunc(answer))
	case "webhook":
		err = http.ListenAndServeTLS(args[1], args[2], args[3], http.HandlerFunc(admit))
	case "fill":
		err = fill(args[1], args[2])
	case "end":
		err = end(args[1], args[2])
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// pause ends on SIGTERM and SIGINT. As pid 1 it inherits every orphan and must reap it.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
		if <-signals != syscall.SIGCHLD {
			return
		}
	}
}

func limited() (context.Context, context.CancelFunc) {
	limit, err := time.ParseDuration(os.Getenv("PROBE_TIMEOUT"))
	if err != nil {
		limit = 3 * time.Second
	}
	return context.WithTimeout(context.Background(), limit)
}

func dns(name, server, protocol string) error {
	ctx, cancel := limited()
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if server != "" {
			address = net.JoinHostPort(server, "53")
		}
		if protocol != "" {
			network = protocol
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	addresses, err := resolver.LookupHost(ctx, name)
	if err == nil {
		fmt.Println(strings.Join(addresses, " "))
	}
	return err
}

func connect(address string) error {
	ctx, cancel := limited()
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("connected to", connection.RemoteAddr())
	return connection.Close()
}

func get(url string) error {
	ctx, cancel := limited()
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	size, err := io.Copy(io.Discard, response.Body)
	if err == nil {
		fmt.Println(response.StatusCode, size)
	}
	return err
}

func answer(w http.ResponseWriter, request *http.Request) {
	if size, err := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/bytes/")); err == nil && size >= 0 {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = io.CopyN(w, zeroes{}, int64(size))
		return
	}
	host, _ := os.Hostname()
	fmt.Fprintln(w, host)
}

type zeroes struct{}

func (zeroes) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}

func fill(path, size string) error {
	bytes, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyN(file, zeroes{}, bytes)
	return err
}

func end(code, words string) error {
	number, err := strconv.Atoi(code)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/dev/termination-log", []byte(words), 0o644); err != nil {
		return err
	}
	os.Exit(number)
	return nil
}

// admit answers an AdmissionReview of the v1 API.
func admit(w http.ResponseWriter, request *http.Request) {
	var review struct {
		Request struct {
			UID    string `json:"uid"`
			Object struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.NewDecoder(io.LimitReader(request.Body, 8<<20)).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	patch := `[{"op":"add","path":"/metadata/labels/lab~1webhook","value":"called"}]`
	if review.Request.Object.Metadata.Labels == nil {
		patch = `[{"op":"add","path":"/metadata/labels","value":{"lab/webhook":"called"}}]`
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1",
		"kind":       "AdmissionReview",
		"response": map[string]any{
			"uid": review.Request.UID, "allowed": true, "patchType": "JSONPatch", "patch": []byte(patch),
		},
	})
}
