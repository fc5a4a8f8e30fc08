// SPDX-License-Identifier: Apache-2.0 OR MIT
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.concurrent.Executors;

/** One thread reads from all connections, four others answer: java Chosen ADDRESS PORT */
public class Chosen {
    static final byte[] ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".getBytes();

    static void answer(SocketChannel connection) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            byte[] text = new byte[1024];
            for (int i = 0; i < 1500; i++) text = Arrays.copyOf(digest.digest(text), 1024);
            connection.write(ByteBuffer.wrap(ANSWER));
        } catch (Exception e) {
            System.err.println(e);
        }
    }

    public static void main(String[] args) throws IOException {
        var workers = Executors.newFixedThreadPool(4);
        var selector = Selector.open();
        var listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(args[0], Integer.parseInt(args[1])));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel connection = listener.accept();
                    connection.configureBlocking(false);
                    connection.register(selector, SelectionKey.OP_READ);
                    continue;
                }
                SocketChannel connection = (SocketChannel) key.channel();
                int read = connection.read(ByteBuffer.allocate(4096));
                if (read < 0) connection.close();
                if (read > 0) workers.submit(() -> answer(connection));
            }
            selector.selectedKeys().clear();
        }
    }
}
