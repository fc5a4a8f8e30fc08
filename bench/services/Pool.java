// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers requests with a pool of eight threads, which leave garbage to collect: java Pool.java ADDRESS PORT
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.concurrent.Executors;

public class Pool {
    static final int ROUNDS = 2000;

    static String work() throws Exception {
        var digest = MessageDigest.getInstance("SHA-256");
        var texts = new ArrayList<String>();
        byte[] sum = {1};
        for (int i = 0; i < ROUNDS; i++) {
            sum = digest.digest(sum);
            texts.add(HexFormat.of().formatHex(sum));
        }
        return texts.get(texts.size() - 1);
    }

    public static void main(String[] args) throws Exception {
        // Else the last part of an answer waits for the client's acknowledgement of the first.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        var server = HttpServer.create(new InetSocketAddress(args[0], Integer.parseInt(args[1])), 128);
        server.createContext("/", exchange -> {
            try {
                byte[] answer = work().getBytes();
                exchange.sendResponseHeaders(200, answer.length);
                exchange.getResponseBody().write(answer);
            } catch (Exception e) {
                throw new RuntimeException(e);
            } finally {
                exchange.close();
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }
}
