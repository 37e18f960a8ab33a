# A sign-up site in Rails, as puma runs it behind a proxy that ends TLS.
require "rails"
require "action_controller/railtie"
require "rack/cors"

class Site < Rails::Application
  config.load_defaults 6.1
  config.root = ENV.fetch("TMPDIR")
  config.eager_load = true
  config.force_ssl = true
  config.logger = Logger.new($stdout)
  config.secret_key_base = "only for tests"
  config.session_store :cookie_store, key: "_site_session", secure: true, same_site: :none
  config.middleware.insert_before 0, Rack::Cors do
    allow do
      origins ENV.fetch("APP_ORIGIN")
      resource "/api/*", headers: :any, methods: %i[get put], credentials: true
    end
  end
end

class SignUpsController < ActionController::Base
  def new
    render inline: <<~PAGE
      <!doctype html><title>Sign up</title>
      <%= form_with url: "/signup", local: true, id: "signup" do |form| %>
        <%= form.text_field :email, id: "email" %><button>Sign up</button>
      <% end %>
    PAGE
  end

  def create
    reset_session
    session[:email] = params.require(:email)
    redirect_to "/welcome"
  end
end

class AccountsController < ActionController::Base
  def welcome
    render inline: <<~PAGE
      <!doctype html><title>Welcome</title><h1>Welcome, <%= session[:email] %></h1>
      <%= form_with url: "/photo", local: true, multipart: true, id: "upload" do |form| %>
        <%= form.file_field :photo, id: "photo" %><button>Upload</button>
      <% end %>
      <a id=export href="/export">Export</a>
    PAGE
  end

  def photo
    file = params.require(:photo)
    done "#{file.size} bytes: #{Digest::SHA256.file(file.path).hexdigest}"
  end

  def oauth_callback
    done "a code of #{params.require(:code).length} characters"
  end

  private

  def done(text)
    render inline: "<!doctype html><title>Done</title><p><%= text %></p>", locals: { text: text }
  end
end

class StreamsController < ActionController::Base
  include ActionController::Live

  # Rack::ETag keeps a response without this field until its end.
  before_action { response.headers["Last-Modified"] = Time.now.httpdate }

  def export
    response.headers["Content-Type"] = "text/csv"
    response.headers["Content-Disposition"] = 'attachment; filename="export.csv"'
    12.times do |number|
      response.stream.write("#{number},#{session[:email]}\n")
      sleep 0.3
    end
  ensure
    response.stream.close
  end

  def events
    response.headers["Content-Type"] = "text/event-stream"
    stream = SSE.new(response.stream)
    12.times do |number|
      stream.write(number.to_s)
      sleep 0.3
    end
    stream.write("", event: "end")
  ensure
    stream.close
  end
end

class ApiController < ActionController::Base
  # Rack::Cors decides about origins.
  self.forgery_protection_origin_check = false

  def me
    session[:name] = params.require(:name) if request.put?
    render json: {
      email: session[:email], name: session[:name], token: form_authenticity_token
    }
  end
end

Site.initialize!
Site.routes.draw do
  get "/signup", to: "sign_ups#new"
  post "/signup", to: "sign_ups#create"
  get "/welcome", to: "accounts#welcome"
  post "/photo", to: "accounts#photo"
  get "/oauth/callback", to: "accounts#oauth_callback"
  get "/export", to: "streams#export"
  get "/events", to: "streams#events"
  match "/api/me", to: "api#me", via: %i[get put]
end
run Site
