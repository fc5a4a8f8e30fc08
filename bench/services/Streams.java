// SPDX-License-Identifier: Apache-2.0 OR MIT
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;

/**
 * Java's own server, and a parallel stream for each request: java Streams ADDRESS PORT. It writes the head of an answer and then
 * its body: Nagle's algorithm holds the second until the client acknowledges the first.
 */
public class Streams {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(args[0], Integer.parseInt(args[1])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            double sum = IntStream.range(0, 20000).parallel().mapToDouble(i -> Math.sin(i) * Math.sqrt(i)).sum();
            byte[] body = (sum + "\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
